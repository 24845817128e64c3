"""Token batches: what they hold, and that cutting them covers each row once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.batch import collate
from engine.records.trajectory import Segment


def segment(length: int, sampled_from: int = 1) -> Segment:
    mask = [position >= sampled_from for position in range(length)]
    return Segment(list(range(length)), mask, [-0.5] * length, [3] * length)


def test_it_pads_on_the_right_with_tokens_that_are_not_trained() -> None:
    batch = collate([segment(2), segment(4, 2)])
    assert batch.ids.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]
    assert batch.loss_mask.tolist() == [[False, True, False, False], [False, False, True, True]]
    assert batch.loss_tokens == 3
    assert batch.versions[0].tolist() == [3, 3, -1, -1]


def test_it_refuses_segments_that_cannot_be_trained_on() -> None:
    with pytest.raises(ValueError, match="first token"):
        collate([segment(3, 0)])
    with pytest.raises(ValueError, match="for each token"):
        collate([Segment([1, 2], [False], [0.0, 0.0], [0, 0])])
    with pytest.raises(ValueError, match="at least one"):
        collate([])


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(64, 2048),
    st.integers(1, 4),
)
def test_pieces_of_all_ranks_cover_each_row_once(
    lengths: list[int], tokens: int, world: int
) -> None:
    segments = [segment(length) for length in lengths]
    batch = collate(segments)
    seen: list[int] = []
    for rank in range(world):
        for index, piece in batch.pieces(tokens, rank, world):
            assert len(piece) == 1 or piece.ids.numel() <= tokens
            assert piece.lengths[: len(index)].tolist() == batch.lengths[index].tolist()
            assert not piece.loss_mask[len(index) :].any()
            for place, row in enumerate(index.tolist()):
                assert torch.equal(piece.ids[place, : lengths[row]], batch.ids[row, : lengths[row]])
                assert int(piece.loss_mask[place].sum()) == lengths[row] - 1
            seen += index.tolist()
    assert sorted(seen) == list(range(len(lengths)))


def test_padding_stays_small_where_lengths_differ() -> None:
    lengths = [20] * 80 + [200] * 20
    batch = collate([segment(length) for length in lengths])
    computed = sum(piece.ids.numel() for _, piece in batch.pieces(1024))
    assert computed < 1.3 * sum(lengths)


def test_few_shapes_occur() -> None:
    """Each new one costs time and memory for as long as the process lives."""
    shapes = set()
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(20, 160, (64,), generator=generator).tolist()
        batch = collate([segment(length) for length in lengths])
        shapes |= {piece.ids.shape for _, piece in batch.pieces(2048)}
    assert len(shapes) < 40
