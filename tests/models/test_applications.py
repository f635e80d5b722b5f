"""Applications of docs/applications at a small size: what each is about is there, on one device and on several."""

import numpy as np
import pytest

import ops
from examples.applications import basecaller, dense_to_sparse


def test_a_gate_grows_sparse_and_its_executors_share_what_they_learn(capsys):
    runs = dense_to_sparse.compare(
        dense_to_sparse.teacher, dense_to_sparse.teacher_batches, 60, seed=0
    )
    dts = runs["dts"]
    assert dts.rungs == sorted(dts.rungs) and dts.rungs[-1] > 0  # it has gone down
    assert dts.chosen[0] > 5 > 3 > dts.chosen[-1] and dts.dropped == 0
    assert (
        dts.error
        < 0.9
        * dense_to_sparse.train(
            dense_to_sparse.teacher, "dts", dense_to_sparse.teacher_batches(0), 1
        ).error
    )
    ratios = dense_to_sparse.summary([runs, runs])
    assert 0 < ratios["places over dense"] < 0.8
    assert "at most 8 from step 0" in capsys.readouterr().out


def test_next_words_train_with_every_kind_of_gate():
    for kind in dense_to_sparse.OPTIONS:
        run = dense_to_sparse.train(dense_to_sparse.words, kind, dense_to_sparse.word_batches(1), 3)
        assert 5 < run.error < 7 and len(run.seconds) == 3


def test_a_vote_mends_what_single_reads_have_wrong():
    strand = [1, 2, 3, 4, 1, 2, 3, 4]
    reads = [strand[:], strand[:], strand[:]]
    reads[0][2] = 1  # another letter
    del reads[1][5]  # one that is missing
    reads[2].insert(4, 2)  # one too many
    assert basecaller.vote(reads) == strand
    assert basecaller.vote([[], [1], [1]]) == [1]
    table = basecaller.distances(np.array([1, 2, 3]), np.array([1, 3]))
    assert table[-1, -1] == 1 and table[0].tolist() == [0, 1, 2]


def test_a_network_of_few_bits_is_trained_and_read(capsys):
    found = basecaller.compare([4], reads=3, steps=2, more=2, devices=2)
    assert list(found) == ["float", "4 bits after training", "4 bits straight through"]
    assert "vote of 3" in capsys.readouterr().out


def test_decoding_takes_away_repetitions_and_blanks():
    frames = [0, 1, 1, 0, 1, 2, 2, 0]
    logits = np.log(np.full((1, 8, 3), 0.1) + 0.8 * np.eye(3)[frames])
    assert ops.ctc_decode(logits) == ops.ctc_decode(logits, beam=4) == [[1, 1, 2]]
    # The likeliest alignment is of blanks alone, the likeliest labels are those of several others.
    unsure = np.log(np.array([[[0.5, 0.4, 0.1], [0.5, 0.4, 0.1]]]))
    assert ops.ctc_decode(unsure) == [[]] and ops.ctc_decode(unsure, beam=3) == [[1]]


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_gives_the_likeliest_labels(seed):
    """Of all label sequences, by their losses."""
    from itertools import product

    from ops.cpu import ctc

    x = np.random.default_rng(seed).normal(size=(1, 4, 3))
    labels = [s for n in range(5) for s in product((1, 2), repeat=n)]
    targets = np.zeros((len(labels), 4), np.int32)
    for row, some in zip(targets, labels, strict=True):
        row[: len(some)] = some
    loss, gx = np.zeros(len(labels)), np.zeros((len(labels), 4, 3))
    counts = np.array([len(some) for some in labels], np.int32)
    frames = np.full(len(labels), 4, np.int32)
    ctc.losses(np.repeat(x, len(labels), 0), targets, frames, counts, 0, loss, gx)
    assert np.exp(-loss).sum() == pytest.approx(1, abs=1e-12)
    assert np.isinf(loss[[len(some) > 3 and len(set(some)) == 1 for some in labels]]).all()
    assert ops.ctc_decode(x, beam=50) == [list(labels[int(loss.argmin())])]


def test_unlikely_targets_have_finite_losses_like_torchs():
    torch = pytest.importorskip("torch")
    from ops.cpu import ctc

    x = np.random.default_rng(0).normal(size=(4, 60, 7)) * np.array([1, 30, 300, 1])[:, None, None]
    targets = np.random.default_rng(1).integers(1, 7, (4, 20)).astype(np.int32)
    frames = np.array([60, 60, 55, 20], np.int32)
    counts = np.array([20, 12, 20, 20], np.int32)
    loss, gx = np.zeros(4), np.zeros(x.shape)
    ctc.losses(x, targets, frames, counts, 0, loss, gx)
    given = torch.tensor(x, requires_grad=True)
    args = [torch.tensor(a).long() for a in (targets, frames, counts)]
    p = given.transpose(0, 1).log_softmax(-1)
    theirs = torch.nn.functional.ctc_loss(p, *args, reduction="none")
    theirs.sum().backward()
    np.testing.assert_allclose(loss, theirs.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(gx, given.grad.numpy(), atol=1e-9, equal_nan=True)
