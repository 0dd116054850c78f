"""Cases that run in several processes with gloo: all in one go, each judged by its name."""

import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import traceback


def run_in_processes(modules, folder, count=2):
    """What the CASES of modules raise in any of the processes, by their names; "" if nothing."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    places, started = [folder / f"{rank}.txt" for rank in range(count)], []
    for rank in range(count):
        command = [sys.executable, __file__, str(folder), str(rank), str(count), *modules]
        with places[rank].open("w") as said:
            started.append(subprocess.Popen(command, env=environment, stderr=said))
    codes = [process.wait(timeout=300) for process in started]
    said = "\n".join(place.read_text() for place in places)
    assert codes == [0] * count, f"exit codes {codes}: {said}"
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    return {name: "".join(results[name] for results in found) for name in found[0]}


def main(folder, rank, count, *modules):
    import torch

    # Beside the other processes.
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        f"file://{folder}/store",  # another program may have taken a port meanwhile
        datetime.timedelta(seconds=240),
        int(count),
        int(rank),
    )
    found, cases = {}, [importlib.import_module(module).CASES for module in modules]
    for name, case in (pair for some in cases for pair in some.items()):
        torch.manual_seed(3)  # the same numbers in every process
        try:
            case()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
            # Also for the case that the other process does not come through this.
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
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
