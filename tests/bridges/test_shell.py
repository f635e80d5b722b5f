"""Launch scripts are read as a shell would put their words together; nothing of them runs."""

from taskflow.bridges.shell import read_script

SCRIPT = """#!/bin/bash
# a comment; with a semicolon
MODEL=small  # chosen here
HOSTS=${SLURM_NNODES:-"2"}
GPUS=8; WORLD=$(($GPUS * ${HOSTS}))
for k in 1 2; do
    echo --never $k
done
if [ ${MODEL} == "tiny" ]; then
    LAYERS=2
elif [[ "$MODEL" = "small" && $WORLD -gt 8 ]]; then
    LAYERS=$((3*GPUS))
    if [ -n "$UNSET" ]; then EXTRA="--wrong"; fi
else
    LAYERS=1
fi
SHAPE=(
    --num-layers $LAYERS  # of them
    --split "99 1"
    # --left-out 3
)
SHAPE+=("--flag")
. `pwd`/rest.sh
torchrun --nnodes ${HOSTS} run.py "${SHAPE[@]}" \\
    $REST '$LITERAL' a\\ b --path=$1
"""


def test_words_of_a_script(tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "rest.sh").write_text('export REST=" --from ${MODEL} \\\n   --last"\n')
    assert read_script(tmp_path / "run.sh") == [
        ["--from", "small", "--last"],
        [
            *("torchrun", "--nnodes", "2", "run.py", "--num-layers", "24", "--split", "99 1"),
            *("--flag", "--from", "small", "--last", "$LITERAL", "a b", "--path="),
        ],
    ]


def test_a_caller_sets_variables(tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT)
    _, *words = read_script(tmp_path / "run.sh", {"MODEL": "tiny", "REST": "--mine"})[-1]
    assert "--mine" in words and words[words.index("--num-layers") + 1] == "2"


def test_quotes_in_what_is_put_in(tmp_path):
    script = """NAME="it's"\nPAIR="a 'b' c"\nrun $NAME "$NAME" x$PAIR'$NAME' "" 'open\n"""
    (tmp_path / "run.sh").write_text(script)
    words = ["run", "it's", "it's", "xa", "'b'", "c$NAME", "", "open"]
    assert read_script(tmp_path / "run.sh") == [words]
