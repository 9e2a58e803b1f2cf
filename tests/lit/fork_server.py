"""Runs the commands of lit tests without starting Python and importing JAX for each.

    fork_server.py SERVE SOCKET                 imports everything once, then forks per command
    fork_server.py SOCKET NAME MODULE ARGS...   has the server run MODULE.main() as NAME

The client hands over its working directory, environment and standard streams, so a command reads
and writes what lit gave it. Each command runs in a process of its own and can do no harm to the
next one.
"""

import array
import os
import socket
import sys


def client(path: str, words: list[str]) -> int:
    """Exit code of the command, run by the server."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        text = "\0\0".join(["\0".join([os.getcwd(), *words]), "\0".join(variables)])
        data = text.encode(errors="surrogateescape")
        streams = array.array("i", [0, 1, 2])
        connection.sendmsg(
            [len(data).to_bytes(8)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
        )
        connection.sendall(data)
        answer = connection.recv(1)
        return answer[0] if answer else 4


def serve(path: str) -> None:
    """Listens until the process is ended."""
    import importlib
    import signal
    import threading
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[2]))  # for what the tests share
    from shardc.runtime.processes.waiting import is_alone
    from tests.py.erased_ops import refuse_erased_ops

    refuse_erased_ops()
    own = ("shardc.cli", "shardc.cli.opt", "shardc.cli.plan", "shardc.cli.run")
    for module in (*own, "filecheck.main", "lit.main"):
        importlib.import_module(module)
    is_alone.set()
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join()  # a process of one thread forks safely
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that answer
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    answer(connection)


def answer(connection: socket.socket) -> None:
    """Runs one command in a child and sends its exit code; ends the process."""
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    size, data = int.from_bytes(head), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    command, variables = data.decode(errors="surrogateescape").split("\0\0")
    directory, *words = command.split("\0")
    child = os.fork()
    if child == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(variable.split("=", 1) for variable in variables.split("\0"))
        os._exit(run(words))
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def run(words: list[str]) -> int:
    """Exit code of the `main` of a module, called as a command."""
    import importlib
    import traceback

    name, module, *sys.argv[1:] = words
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.argv[0] = name
    try:
        code = importlib.import_module(module).main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter ends a program: trace, code 1
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr, flush=True)
        return 1
    return code or 0


if __name__ == "__main__":
    if sys.argv[1] == "SERVE":
        serve(sys.argv[2])
    else:
        sys.exit(client(sys.argv[1], sys.argv[2:]))
