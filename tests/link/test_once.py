"""What threads ask for at the same time is made once."""

from host_program import compile_host_program

from build_system.paths import ROOT


def test_threads(tmp_path):
    options = ("-I", ROOT / "src", "-Wextra", "-fsanitize=address,undefined")
    run = compile_host_program("link/once", tmp_path, options=options)
    # Of three keys each once; and where the first maker fails, another makes it.
    assert run([]) == ["1 1 1 equal", "2 1 equal"]
