"""The names of Spark's own functions, from `SHOW FUNCTIONS` of 4.2 and 4.3; those of package `expressions.aggregate` separately."""

from __future__ import annotations

_AGGREGATES = """
any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine array_agg avg
bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr count
count_if count_min_sketch covar_pop covar_samp every first first_value histogram_numeric hll_sketch_agg hll_union_agg
kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont
percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg
skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg
try_sum tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
"""

_OTHERS = """
abs acos acosh add_months aes_decrypt aes_encrypt aggregate and approx_top_k_estimate array array_append array_compact
array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min array_position array_prepend
array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh
base64 between bigint bin binary bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean bround
btrim cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation collations concat
concat_ws contains conv convert_timezone cos cosh cot crc32 csc cume_dist curdate current_catalog current_database current_date
current_path current_schema current_time current_timestamp current_timezone current_user date date_add date_diff date_format
date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal
decode degrees dense_rank div double e element_at elt encode endswith equal_null exists exp explode explode_outer expm1 extract
factorial filter find_in_set flatten float floor forall format_number format_string from_avro from_csv from_json from_protobuf
from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id hash hex hll_sketch_estimate
hll_union hour hypot if ifnull ilike in initcap inline inline_outer input_file_block_length input_file_block_start input_file_name
instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull java_method json_array_length json_object_keys
json_tuple kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
kll_sketch_to_string_double kll_sketch_to_string_float lag last_day lcase lead least left len length levenshtein like ln
localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask md5 minute mod monotonically_increasing_id month
monthname months_between named_struct nanvl negative next_day not now nth_value ntile nullif nullifzero nvl nvl2 octet_length or
overlay parse_json parse_url percent_rank pi pmod posexplode posexplode_outer position positive pow power printf python_worker_logs
quarter quote radians raise_error rand randn random randstr range rank reduce reflect regexp regexp_count regexp_extract
regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike round row_number
rpad rtrim schema_of_avro schema_of_csv schema_of_json schema_of_variant schema_of_xml sec second sentences sequence session_user
session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum sin sinh size slice smallint sort_array
soundex space spark_partition_id split split_part sql_keywords sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
stack startswith str_to_map string struct substr substring substring_index tan tanh theta_difference theta_intersection
theta_sketch_estimate theta_union time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
time_to_millis time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_avro to_binary
to_char to_csv to_date to_json to_number to_protobuf to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add
try_aes_decrypt try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod
try_multiply try_parse_json try_parse_url try_reflect try_subtract try_to_binary try_to_date try_to_number try_to_time
try_to_timestamp try_url_decode try_validate_utf8 try_variant_get tuple_difference_double tuple_difference_integer
tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double tuple_intersection_integer
tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex uniform unix_date unix_micros
unix_millis unix_seconds unix_timestamp upper url_decode url_encode user uuid validate_utf8 variant_explode variant_explode_outer
variant_get vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
version weekday weekofyear when width_bucket window window_time xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
"""

_AGGREGATES_SINCE_4_3 = "collect_union"
_OTHERS_SINCE_4_3 = """
counter_diff from_base32 hmac jaro_winkler_similarity localtime timestamp_nanos to_base32 try_variant_array_append try_variant_insert
try_variant_set unix_nanos variant_array_append variant_delete variant_insert variant_set variant_strip_nulls
"""

_PLACE = "let the source add it as columns: `metadata: [file, line]` (Kafka: [topic, partition, offset])"
_CHANCE = "derive it from the row, such as pmod(xxhash64(id), 100) < 5 for 5 of 100 rows"
_ID = "derive it from the row, such as sha2(concat_ws(':', file, line), 256) with `metadata: [file, line]` at the source"
REFUSED = {
    "input_file_name": ("returns an empty text: rows do not come from a file scan of Spark", _PLACE),
    "input_file_block_start": ("returns -1: rows do not come from a file scan of Spark", _PLACE),
    "input_file_block_length": ("returns -1: rows do not come from a file scan of Spark", _PLACE),
    "spark_partition_id": ("differs from run to run: it numbers Spark's tasks", _PLACE),
    "monotonically_increasing_id": ("differs from run to run, and restarts with each Batch", _ID),
    "uuid": ("differs from run to run: a reprocessed row gets another value", _ID),
    "rand": ("differs from run to run", _CHANCE),
    "randn": ("differs from run to run", _CHANCE),
    "random": ("differs from run to run", _CHANCE),
    "uniform": ("differs from run to run", _CHANCE),
    "randstr": ("differs from run to run", _ID),
    "shuffle": ("differs from run to run", "sort the array by a hash: array_sort(transform(items, x -> struct(xxhash64(x) AS h, x)))"),
    "python_worker_logs": ("reads a table of Spark's session, not the rows", "read the run's log: tmp/run.log in the state folder"),
}
"""Spark's functions that have another meaning here, or another result whenever a Batch is repeated: (why, what to use instead)"""

AGGREGATES = frozenset([*_AGGREGATES.split(), _AGGREGATES_SINCE_4_3])
FUNCTIONS = AGGREGATES | frozenset([*_OTHERS.split(), *_OTHERS_SINCE_4_3.split()])
