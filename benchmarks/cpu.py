"""What a run has cost, whoever did its work."""

import psutil


def tree_cpu_s() -> float:
    """CPU seconds of this process and all below it; workers that have ended count in the parent that waited for them."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
