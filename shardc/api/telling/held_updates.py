"""Whether the updates of a step wait for all stages, whatever their order."""

from shardc.plan.executable import Executable
from shardc.plan.program_graph import executable_graph
from shardc.schedule.tasks import UPDATE, Task


def are_held(executable: Executable) -> bool:
    """Whether each update that reuses a donated argument needs values of every device group.

    So it is where all gradients are scaled by their common norm, or dropped if one of them is not
    finite. False if there is a single group, or nothing is reused.
    """
    _, graph = executable_graph(executable)
    consuming = {
        (each.stage, each.round) for each in executable.programs if each.consumes_arguments
    }
    updates = [
        task
        for task in graph.tasks
        if task.kind == UPDATE and (task.place(executable.num_stages), task.microbatch) in consuming
    ]
    groups = set(graph.groups.values())

    def needed(update: Task) -> set[int]:
        """The device groups of all that an update waits for, through other updates, too."""
        found, seen, todo = {graph.group(update)}, {update}, [update]
        while todo:
            for need in graph.needs[todo.pop()]:
                found.add(need.source)
                if need.task.kind == UPDATE and need.task not in seen:
                    seen.add(need.task)
                    todo.append(need.task)
        return found

    return len(groups) > 1 and bool(updates) and all(needed(each) == groups for each in updates)
