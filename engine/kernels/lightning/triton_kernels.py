"""The Triton kernels of lightning attention: plain pointers, fixed configurations, fp32 inside.

A program works on one piece (a chunk of one sequence, see `grids`) and one head. Tokens of q, k, v
and their gradients are tiles [C, columns] of tensors with strides (batch, heads, tokens, 1), read
as fp32; slots without a token read as zero and are not written. States are [rows, heads, dim,
width] in fp32. Exponents of the decay are never positive.
"""

# Triton's functions have no types: mypy takes their arguments as they are.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False

import triton
import triton.language as tl


@triton.jit
def _read(
    base, stride_b, stride_h, stride_t, batch, head, start, size, columns, width,
    C: tl.constexpr,
):  # fmt: skip
    """Tile [C, columns] of the tokens from `start`."""
    slot = tl.arange(0, C)
    at = base + batch * stride_b + head * stride_h
    at = at + (start + slot)[:, None] * stride_t + columns[None, :]
    mask = (slot < size)[:, None] & (columns < width)[None, :]
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _write(
    base, stride_b, stride_h, stride_t, batch, head, start, size, columns, width, tile,
    C: tl.constexpr,
):  # fmt: skip
    slot = tl.arange(0, C)
    at = base + batch * stride_b + head * stride_h
    at = at + (start + slot)[:, None] * stride_t + columns[None, :]
    mask = (slot < size)[:, None] & (columns < width)[None, :]
    tl.store(at, tile.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _read_state(base, row, head, heads, rows, columns, dim, width):
    """Block [rows, columns] of one state."""
    at = base + (row * heads + head) * dim * width + rows[:, None] * width + columns[None, :]
    return tl.load(at, mask=(rows < dim)[:, None] & (columns < width)[None, :], other=0.0)


@triton.jit
def _write_state(base, row, head, heads, rows, columns, dim, width, block):
    at = base + (row * heads + head) * dim * width + rows[:, None] * width + columns[None, :]
    tl.store(at, block, mask=(rows < dim)[:, None] & (columns < width)[None, :])


@triton.jit
def _within(slope, C: tl.constexpr):
    """exp(-s (i-j)) for i >= j, else 0."""
    slot = tl.arange(0, C)
    distance = slot[:, None] - slot[None, :]
    return tl.where(distance >= 0, tl.exp(-slope * tl.maximum(distance, 0)), 0.0)


@triton.jit
def _from_start(slope, C: tl.constexpr):
    """exp(-s (i+1)): what a token sees of the state before its chunk."""
    return tl.exp(-slope * (tl.arange(0, C) + 1))


@triton.jit
def _to_end(slope, size, C: tl.constexpr):
    """exp(-s (m-1-i)): what the state after a chunk of m tokens keeps of a token."""
    return tl.exp(-slope * tl.maximum(size - 1 - tl.arange(0, C), 0))


@triton.jit
def products_of_tokens(
    a, a_b, a_h, a_t, b, b_b, b_h, b_t, target, slopes, starts, sizes, batch, heads, dim, width,
    OF_KEYS: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """target[piece] = a^T diag(decay) b over the tokens of each piece.

    OF_KEYS: decay to the end of the chunk (a, b = k, v: what a chunk adds to the state); else from
    its start (a, b = q, dO: gradient of the state before the chunk).
    """
    piece = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, D)
    columns = tl.program_id(2) * E + tl.arange(0, E)
    start, size = tl.load(starts + piece), tl.load(sizes + piece)
    slope = tl.load(slopes + head)
    left = _read(a, a_b, a_h, a_t, piece % batch, head, start, size, rows, dim, C)
    right = _read(b, b_b, b_h, b_t, piece % batch, head, start, size, columns, width, C)
    if OF_KEYS:
        left *= _to_end(slope, size, C)[:, None]
    else:
        left *= _from_start(slope, C)[:, None]
    block = tl.dot(tl.trans(left), right, input_precision=PRECISION)
    _write_state(target, piece, head, heads, rows, columns, dim, width, block)


@triton.jit
def scan(
    states, slopes, sizes, before, nodes, first, count, step, roots, heads, elements,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """states[after piece] += decay * states[before it], along the pieces of each of `nodes`."""
    node = tl.load(nodes + tl.program_id(0))
    head = tl.program_id(1).to(tl.int64)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = at < elements
    slope = tl.load(slopes + head)
    piece = tl.load(first + node)
    pieces = tl.load(count + node)
    row = tl.load(before + piece)
    state = tl.load(states + (row * heads + head) * elements + at, mask=mask, other=0.0)
    for _ in range(pieces):
        here = states + ((roots + piece) * heads + head) * elements + at
        decay = tl.exp(-slope * tl.load(sizes + piece))
        state = decay * state + tl.load(here, mask=mask, other=0.0)
        tl.store(here, state, mask=mask)
        piece += step


@triton.jit
def scan_back(
    reads, d_final, entering, slopes, sizes, nodes, first, count, step, children, first_child,
    heads, elements,
    FINAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn `reads` (gradients of the states before pieces, of what reads them there) into the
    gradients of the states after pieces, from the last piece of each of `nodes` to its first;
    `entering` [N, ...] gets the gradient of the state that enters a node.
    """
    node = tl.load(nodes + tl.program_id(0))
    head = tl.program_id(1).to(tl.int64)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = at < elements
    slope = tl.load(slopes + head)
    state = tl.zeros((BLOCK,), dtype=tl.float32)
    if FINAL:
        state = tl.load(d_final + (node * heads + head) * elements + at, mask=mask, other=0.0)
    for index in range(tl.load(first_child + node), tl.load(first_child + node + 1)):
        child = tl.load(children + index)
        state += tl.load(entering + (child * heads + head) * elements + at, mask=mask, other=0.0)
    pieces = tl.load(count + node)
    piece = tl.load(first + node) + (pieces - 1) * step
    for _ in range(pieces):
        here = reads + (piece * heads + head) * elements + at
        read = tl.load(here, mask=mask, other=0.0)
        tl.store(here, state, mask=mask)
        state = read + tl.exp(-slope * tl.load(sizes + piece)) * state
        piece -= step
    tl.store(entering + (node * heads + head) * elements + at, state, mask=mask)


@triton.jit
def outputs(
    q, q_b, q_h, q_t, k, k_b, k_h, k_t, v, v_b, v_h, v_t, o, o_b, o_h, o_t, states, slopes,
    starts, sizes, before, batch, heads, dim, width,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o = ((q k^T) within) v + diag(from_start) q S, with S the state before the piece."""
    piece = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, D)
    columns = tl.program_id(2) * E + tl.arange(0, E)
    start, size = tl.load(starts + piece), tl.load(sizes + piece)
    slope = tl.load(slopes + head)
    queries = _read(q, q_b, q_h, q_t, piece % batch, head, start, size, rows, dim, C)
    keys = _read(k, k_b, k_h, k_t, piece % batch, head, start, size, rows, dim, C)
    values = _read(v, v_b, v_h, v_t, piece % batch, head, start, size, columns, width, C)
    scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * _within(slope, C)
    tile = tl.dot(scores, values, input_precision=PRECISION)
    state = _read_state(states, tl.load(before + piece), head, heads, rows, columns, dim, width)
    queries *= _from_start(slope, C)[:, None]
    tile += tl.dot(queries, state, input_precision=PRECISION)
    _write(o, o_b, o_h, o_t, piece % batch, head, start, size, columns, width, tile, C)


@triton.jit
def gradients_of_queries_and_keys(
    q, q_b, q_h, q_t, k, k_b, k_h, k_t, v, v_b, v_h, v_t, do, do_b, do_h, do_t, dq, dq_b, dq_h,
    dq_t, dk, dk_b, dk_h, dk_t, states, d_after, slopes, starts, sizes, before, batch, heads,
    dim, width,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq = dA k + diag(from_start) dO S^T and dk = dA^T q + diag(to_end) v dS^T,
    with dA = (dO v^T) within, and dS the gradient of the state after the piece."""
    piece = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, D)
    start, size = tl.load(starts + piece), tl.load(sizes + piece)
    slope = tl.load(slopes + head)
    row = tl.load(before + piece)
    from_start, to_end = _from_start(slope, C)[:, None], _to_end(slope, size, C)[:, None]
    d_scores = tl.zeros((C, C), dtype=tl.float32)
    d_queries = tl.zeros((C, D), dtype=tl.float32)
    d_keys = tl.zeros((C, D), dtype=tl.float32)
    for block in range(0, width, E):
        columns = block + tl.arange(0, E)
        d_out = _read(do, do_b, do_h, do_t, piece % batch, head, start, size, columns, width, C)
        values = _read(v, v_b, v_h, v_t, piece % batch, head, start, size, columns, width, C)
        d_scores += tl.dot(d_out, tl.trans(values), input_precision=PRECISION)
        state = _read_state(states, row, head, heads, rows, columns, dim, width)
        d_queries += tl.dot(d_out * from_start, tl.trans(state), input_precision=PRECISION)
        state = _read_state(d_after, piece, head, heads, rows, columns, dim, width)
        d_keys += tl.dot(values * to_end, tl.trans(state), input_precision=PRECISION)
    d_scores *= _within(slope, C)
    keys = _read(k, k_b, k_h, k_t, piece % batch, head, start, size, rows, dim, C)
    d_queries += tl.dot(d_scores, keys, input_precision=PRECISION)
    _write(dq, dq_b, dq_h, dq_t, piece % batch, head, start, size, rows, dim, d_queries, C)
    queries = _read(q, q_b, q_h, q_t, piece % batch, head, start, size, rows, dim, C)
    d_keys += tl.dot(tl.trans(d_scores), queries, input_precision=PRECISION)
    _write(dk, dk_b, dk_h, dk_t, piece % batch, head, start, size, rows, dim, d_keys, C)


@triton.jit
def gradients_of_values(
    q, q_b, q_h, q_t, k, k_b, k_h, k_t, do, do_b, do_h, do_t, dv, dv_b, dv_h, dv_t, d_after,
    slopes, starts, sizes, batch, heads, dim, width,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dv = A^T dO + diag(to_end) k dS, with A = (q k^T) within."""
    piece = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    rows = tl.arange(0, D)
    columns = tl.program_id(2) * E + tl.arange(0, E)
    start, size = tl.load(starts + piece), tl.load(sizes + piece)
    slope = tl.load(slopes + head)
    queries = _read(q, q_b, q_h, q_t, piece % batch, head, start, size, rows, dim, C)
    keys = _read(k, k_b, k_h, k_t, piece % batch, head, start, size, rows, dim, C)
    d_out = _read(do, do_b, do_h, do_t, piece % batch, head, start, size, columns, width, C)
    scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * _within(slope, C)
    tile = tl.dot(tl.trans(scores), d_out, input_precision=PRECISION)
    state = _read_state(d_after, piece, head, heads, rows, columns, dim, width)
    keys *= _to_end(slope, size, C)[:, None]
    tile += tl.dot(keys, state, input_precision=PRECISION)
    _write(dv, dv_b, dv_h, dv_t, piece % batch, head, start, size, columns, width, tile, C)
