"""The commit that a result file names: the one given, in full where git knows it."""

import shutil
import subprocess

import pytest
import torch

from bench.measure import machine


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder as the checkout, in which git finds no other one around it."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    return tmp_path


@pytest.fixture
def commit(checkout, monkeypatch):
    """An empty commit, made without anybody's configuration."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *who, *arguments]
        done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "--quiet")
    commit = run("commit-tree", "-m", "empty", run("write-tree"))
    # A tag with a message is an object of its own.
    run("tag", "-a", "-m", "first", "v1", commit)
    return commit


def test_given_commit_is_named_in_full(commit):
    assert len(commit) == 40
    for given in (commit, commit[:7], "v1"):
        assert machine.describe_machine(given)["commit"] == commit


def test_commit_that_git_does_not_know_stays_as_it_is(commit):
    unknown = ("0" if commit[0] != "0" else "1") + commit[1:8]
    assert machine.describe_machine(unknown)["commit"] == unknown


def test_without_a_checkout_the_commit_stays_as_it_is(checkout):
    assert machine.describe_machine("eb43883")["commit"] == "eb43883"


def test_without_git_the_commit_stays_as_it_is(checkout, monkeypatch):
    monkeypatch.setenv("PATH", str(checkout))
    assert machine.describe_machine("eb43883")["commit"] == "eb43883"
