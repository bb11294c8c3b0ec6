"""All rules for a flow, and the function that applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan import key_analysis
from scribengin.plan.checks import (
    arrows,
    edges,
    effects,
    ends,
    evolve,
    expressions,
    folders,
    groups,
    node_types,
    python_steps,
    state,
    tables,
    tests,
    tiers,
    time,
)
from scribengin.plan.checks.subject import Rule, Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Problem
    from scribengin.spec.model import Flow
    from scribengin.spec.places import Places

RULES: tuple[Rule, ...] = (
    arrows.no_cycle,
    arrows.inputs_are_there,
    arrows.inputs_are_counted,
    arrows.everything_is_read,
    folders.one_writer_a_folder,
    folders.no_sink_feeds_a_source,
    folders.done_files_can_go,
    state.static_is_supported,
    state.static_inputs_join_streams,
    ends.options_fit_the_format,
    ends.options_fit_together,
    ends.csv_options_fit_together,
    ends.schemas_are_known,
    ends.delivery_can_be_kept,
    ends.options_fit_the_delivery,
    ends.spark_writes_alone,
    ends.query_names_are_unique,
    ends.columns_fit_the_sink,
    node_types.node_types_hold,
    tables.tables_have_what_their_mode_needs,
    tables.table_columns_are_there,
    key_analysis.keys_identify_derived_rows,
    tables.one_writer_a_table,
    tables.passwords_are_secrets,
    tables.no_table_feeds_itself,
    python_steps.functions_are_there,
    python_steps.branches_are_declared,
    python_steps.frames_fail_whole,
    python_steps.utility_functions_are_there,
    python_steps.utilities_give_records,
    python_steps.free_ones_only_test,
    expressions.sql_steps_are_valid,
    expressions.expressions_are_valid,
    expressions.keys_are_there,
    expressions.parse_reads_text,
    expressions.unions_match,
    expressions.column_names_are_unique,
    time.watermarks_fit,
    time.time_columns_fit,
    time.state_is_bounded,
    state.unions_have_every_watermark,
    state.state_has_one_output,
    state.emit_fits,
    state.sql_is_independent_of_batches,
    tiers.tiers_name_nodes,
    tiers.agent_tiers_have_sources,
    tiers.tier_names_are_free,
    tiers.settings_are_sparks,
    tiers.every_node_has_a_tier,
    tiers.workers_have_work,
    tiers.every_tier_has_work,
    tiers.tiers_feed_one_way,
    tiers.together_is_not_cut,
    groups.groups_are_there,
    groups.tiers_run_on_hosts,
    groups.sinks_can_be_members,
    edges.edges_are_arrows,
    edges.edges_are_cut,
    edges.shared_channels_have_one_definition,
    edges.groups_wait_for_their_members,
    edges.keyrings_are_kept,
    edges.channel_places_are_unique,
    edges.keys_order_rows,
    edges.clusters_are_known,
    effects.tables_are_read_whole,
    effects.channels_support_their_properties,
    effects.only_stateful_tiers_acknowledge_state,
    evolve.evolve_has_a_place,
    evolve.added_columns_meet_no_state,
    evolve.added_columns_fit_the_sinks,
    tests.tests_fit,
)


def check_flow(
    flow: Flow,
    places: Places,
    *,
    source_types: Mapping[str, NodeType],
    sink_types: Mapping[str, NodeType],
    broken: frozenset[str] = frozenset(),
    unread: frozenset[str] = frozenset(),
) -> list[Problem]:
    """Every Problem of a Flow, in file order. Reads modules without importing them; needs neither Java nor Spark.

    The parser checks types and options of single keys; these rules check the flow as a whole.

    Args:
        flow: The flow to check.
        places: The places of its text.
        source_types: The known types of sources.
        sink_types: The known types of sinks.
        broken: Nodes in which the parser found errors; possible consequences of these errors are not reported.
        unread: Sections in which the parser found errors, treated in the same way.
    """
    subject = Subject(flow, places, source_types, sink_types, broken, unread)
    problems = [problem for rule in RULES for problem in rule(subject) if not subject.follows(problem)]
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.place)
