"""Cases that run in several processes with gloo: all in one go, each judged by its name."""

import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import traceback


def run_in_processes(modules, folder, count=2, backend="gloo", seconds=300):
    """What the CASES of modules raise in any of the processes, by their names; "" if nothing. With
    "nccl" each has a GPU of its own; with "gloo" they share what there is."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    places, started = [folder / f"{rank}.txt" for rank in range(count)], []
    try:
        for rank in range(count):
            command = [sys.executable, __file__, str(folder), str(rank), str(count), backend]
            with places[rank].open("w") as said:
                command += [str(seconds), *modules]
                started.append(subprocess.Popen(command, env=environment, stderr=said))
        codes = [process.wait(timeout=seconds) for process in started]
    finally:
        for process in started:
            if process.poll() is None:  # the others have waited for it
                process.kill()
                process.wait()
    said = "\n".join(place.read_text() for place in places)
    assert codes == [0] * count, f"exit codes {codes}: {said}"
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    return {name: "".join(results[name] for results in found) for name in found[0]}


def run_cases(modules):
    """The same of this process, which has a process group."""
    import torch

    found, cases = {}, [importlib.import_module(module).CASES for module in modules]
    for name, case in (pair for some in cases for pair in some.items()):
        torch.manual_seed(3)  # the same numbers in every process
        try:
            case()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
            # Also for the case that another process does not come through this.
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def main(folder, rank, count, backend, seconds, *modules):
    import torch

    # Beside the other processes.
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(rank) % torch.cuda.device_count())
    torch.distributed.init_process_group(
        backend,
        f"file://{folder}/store",  # another program may have taken a port meanwhile
        datetime.timedelta(seconds=int(0.8 * int(seconds))),
        int(count),
        int(rank),
    )
    found = run_cases(modules)
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()  # nobody closes a connection that another still reads
    torch.distributed.destroy_process_group()
    # Not through the end of the interpreter: a thread of gloo that lets go of a Python object there
    # is ended where it waits for the interpreter, and seldom ends the process with it ("terminate
    # called without an active exception"), whose work is done and written.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
