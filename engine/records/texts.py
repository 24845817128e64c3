"""What single tokens say, with characters that span several tokens kept whole."""

import codecs
from collections.abc import Iterable


def whole_texts(pieces: Iterable[bytes]) -> list[str | None]:
    """One entry per token, from the bytes that each token stands for.

    A character whose bytes are spread over several tokens stands whole at the first of them, and
    the others are None. Joining the entries that are not None gives the text; bytes that are no
    UTF-8 become U+FFFD. Call it once for what the policy sampled and once for what the environment
    wrote, so that no character joins the two.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str | None] = []
    first, text = 0, ""
    for position, piece in enumerate(pieces):
        texts.append(None)
        text += decoder.decode(piece)
        if not decoder.getstate()[0]:  # no character is left open
            texts[first] = text
            first, text = position + 1, ""
    if first < len(texts):
        texts[first] = text + decoder.decode(b"", final=True)
    return texts
