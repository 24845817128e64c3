"""The Triton kernels of tree attention: plain pointers, fixed configurations, sums in fp32.

Tiles [tokens, D] are read of contiguous [heads, tokens, dim]; what is past tokens or dim reads as
zero and is not written. Key j is visible to query i exactly if j <= i < ends[j]; `reach` holds the
largest end in each block of keys, so that blocks which no query of a tile sees are skipped at the
cost of one number. HALF: products of bf16 tiles as they are; else all is cast to fp32 on loading,
which Triton's interpreter needs as well. Exponentials are of base 2, `lse` too.
"""

# Triton's functions have no types: mypy takes their arguments as they are.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

import triton
import triton.language as tl


@triton.jit
def _read(base, head, rows, tokens, dim, D: tl.constexpr, HALF: tl.constexpr):
    columns = tl.arange(0, D)
    at = base + (head * tokens + rows)[:, None] * dim + columns[None, :]
    mask = (rows < tokens)[:, None] & (columns < dim)[None, :]
    tile = tl.load(at, mask=mask, other=0.0)
    if not HALF:
        tile = tile.to(tl.float32)
    return tile


@triton.jit
def _write(base, head, rows, tokens, dim, tile, D: tl.constexpr):
    columns = tl.arange(0, D)
    at = base + (head * tokens + rows)[:, None] * dim + columns[None, :]
    mask = (rows < tokens)[:, None] & (columns < dim)[None, :]
    tl.store(at, tile.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _product(a, b, HALF: tl.constexpr):
    """a b in fp32; of fp32 tiles without rounding them to TF32."""
    if HALF:
        made = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        made = tl.dot(a, b, input_precision="ieee")
    return made


@triton.jit
def _scores(q, k, rows, keys, ends, tokens, scale, HALF: tl.constexpr):
    """Scores to base 2, -inf where hidden."""
    end = tl.load(ends + keys, mask=keys < tokens, other=0)
    visible = (keys[None, :] <= rows[:, None]) & (rows[:, None] < end[None, :])
    return tl.where(visible, _product(q, tl.trans(k), HALF) * scale, float("-inf"))


@triton.jit
def attend(
    q, k, v, out, lse, ends, reach, tokens, dim, scale,
    GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A program: ROWS queries of one head."""
    first = tl.program_id(0) * ROWS
    head = tl.program_id(1).to(tl.int64)
    rows = first + tl.arange(0, ROWS)
    q_tile = _read(q, head, rows, tokens, dim, D, HALF)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, D], tl.float32)
    for block in range(0, tl.cdiv(tl.minimum(first + ROWS, tokens), KEYS)):
        if tl.load(reach + block) > first:
            keys = block * KEYS + tl.arange(0, KEYS)
            k_tile = _read(k, head // GROUP, keys, tokens, dim, D, HALF)
            scores = _scores(q_tile, k_tile, rows, keys, ends, tokens, scale, HALF)
            now = tl.maximum(largest, tl.max(scores, 1))
            base = tl.where(now == float("-inf"), 0.0, now)
            p = tl.exp2(scores - base[:, None])
            rescale = tl.exp2(largest - base)
            v_tile = _read(v, head // GROUP, keys, tokens, dim, D, HALF)
            weighted = weighted * rescale[:, None] + _product(p, v_tile, HALF)
            total = total * rescale + tl.sum(p, 1)
            largest = now
    total = tl.where(total == 0.0, 1.0, total)  # of rows past the tokens
    _write(out, head, rows, tokens, dim, weighted / total[:, None], D)
    tl.store(lse + head * tokens + rows, largest + tl.log2(total), mask=rows < tokens)


@triton.jit
def _gradient_of_scores(
    q, k, v, d_out, lse, delta, rows, keys, ends, tokens, scale, HALF: tl.constexpr
):
    """Weights and the gradient of natural scores; lse and delta are those of the rows."""
    p = tl.exp2(_scores(q, k, rows, keys, ends, tokens, scale, HALF) - lse[:, None])
    return p, p * (_product(d_out, tl.trans(v), HALF) - delta[:, None])


@triton.jit
def gradients_of_queries(
    q, k, v, d_out, lse, delta, d_q, ends, reach, tokens, dim, scale, natural_scale,
    GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A program: ROWS queries of one head."""
    first = tl.program_id(0) * ROWS
    head = tl.program_id(1).to(tl.int64)
    rows = first + tl.arange(0, ROWS)
    q_tile = _read(q, head, rows, tokens, dim, D, HALF)
    d_out_tile = _read(d_out, head, rows, tokens, dim, D, HALF)
    row_lse = tl.load(lse + head * tokens + rows, mask=rows < tokens, other=0.0)
    row_delta = tl.load(delta + head * tokens + rows, mask=rows < tokens, other=0.0)
    gathered = tl.zeros([ROWS, D], tl.float32)
    for block in range(0, tl.cdiv(tl.minimum(first + ROWS, tokens), KEYS)):
        if tl.load(reach + block) > first:
            keys = block * KEYS + tl.arange(0, KEYS)
            k_tile = _read(k, head // GROUP, keys, tokens, dim, D, HALF)
            v_tile = _read(v, head // GROUP, keys, tokens, dim, D, HALF)
            _, d_scores = _gradient_of_scores(
                q_tile, k_tile, v_tile, d_out_tile, row_lse, row_delta, rows, keys, ends, tokens,
                scale, HALF,
            )  # fmt: skip
            gathered += _product(d_scores, k_tile, HALF)
    _write(d_q, head, rows, tokens, dim, gathered * natural_scale, D)


@triton.jit
def gradients_of_keys(
    q, k, v, d_out, lse, delta, d_k, d_v, ends, reach, tokens, dim, scale, natural_scale,
    GROUP: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """A program: KEYS keys of one key head, seen by the queries up to their reach."""
    block = tl.program_id(0)
    key_head = tl.program_id(1).to(tl.int64)
    keys = block * KEYS + tl.arange(0, KEYS)
    k_tile = _read(k, key_head, keys, tokens, dim, D, HALF)
    v_tile = _read(v, key_head, keys, tokens, dim, D, HALF)
    k_sum = tl.zeros([KEYS, D], tl.float32)
    v_sum = tl.zeros([KEYS, D], tl.float32)
    last = tl.cdiv(tl.load(reach + block).to(tl.int32), ROWS)
    for member in range(0, GROUP):
        head = key_head * GROUP + member
        for part in range(block * KEYS // ROWS, last):
            rows = part * ROWS + tl.arange(0, ROWS)
            q_tile = _read(q, head, rows, tokens, dim, D, HALF)
            d_out_tile = _read(d_out, head, rows, tokens, dim, D, HALF)
            row_lse = tl.load(lse + head * tokens + rows, mask=rows < tokens, other=0.0)
            row_delta = tl.load(delta + head * tokens + rows, mask=rows < tokens, other=0.0)
            p, d_scores = _gradient_of_scores(
                q_tile, k_tile, v_tile, d_out_tile, row_lse, row_delta, rows, keys, ends, tokens,
                scale, HALF,
            )  # fmt: skip
            v_sum += _product(tl.trans(p), d_out_tile, HALF)
            k_sum += _product(tl.trans(d_scores), q_tile, HALF)
    _write(d_k, key_head, keys, tokens, dim, k_sum * natural_scale, D)
    _write(d_v, key_head, keys, tokens, dim, v_sum, D)
