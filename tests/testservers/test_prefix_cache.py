"""Prefix cache of the reference server: which tokens it has, what leaves it, and what a token costs."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.testservers.behaviour import Behaviour
from seamark.testservers.prefix_cache import BLOCK_TOKENS, PrefixCache, chained
from seamark.testservers.request import read_ask
from seamark.testservers.server import ReferenceServer

TOKENS = st.lists(st.integers(0, 2), max_size=200)


@pytest.mark.covers("D8")
def test_a_prompt_hits_the_whole_blocks_that_it_has_in_common_but_computes_one_token() -> None:
    cache = PrefixCache(1 << 20)
    first = list(range(64))
    assert cache.take(chained(first), 64) == 0
    assert cache.take(chained(first), 64) == 48  # the last token is computed
    assert cache.take(chained([*first, 1]), 65) == 64
    assert cache.take(chained([*first[:40], *range(24)]), 64) == 32
    assert cache.take(chained([9, *first[1:]]), 64) == 0
    assert (cache.queries, cache.hits) == (64 * 4 + 65, 48 + 64 + 32)


@pytest.mark.covers("D8")
def test_the_least_recently_used_prompt_leaves_first_and_its_end_before_its_beginning() -> None:
    cache = PrefixCache(4 * BLOCK_TOKENS)
    old, new = list(range(33)), list(range(100, 133))
    cache.take(chained(old), 33)
    cache.take(chained(new), 33)
    assert cache.take(chained(old), 33) == 32
    cache.take(chained(list(range(200, 217))), 17)  # one block: the end of `new` leaves
    assert cache.take(chained(new), 33) == 16  # and its end is back: now that of `old` leaves
    assert cache.take(chained(old), 33) == 16


@given(st.lists(TOKENS, max_size=12), st.integers(1, 8))
def test_a_hit_is_a_common_beginning_with_an_earlier_prompt_and_the_room_is_kept(prompts: list[list[int]], room: int):
    cache, seen = PrefixCache(room * BLOCK_TOKENS), list[list[int]]()
    for prompt in prompts:
        hit = cache.take(chained(prompt), len(prompt))
        assert hit % BLOCK_TOKENS == 0
        assert hit < max(1, len(prompt))
        assert hit == 0 or any(earlier[:hit] == prompt[:hit] for earlier in seen)
        assert len(cache._blocks) <= room
        seen.append(prompt)


@pytest.mark.covers("D8")
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_the_first_token_is_later_by_each_token_that_is_not_cached(endpoint: str) -> None:
    loop = asyncio.new_event_loop()
    behaviour = Behaviour(ttft_ns=1000, prefill_ns=10, cache_tokens=1024)
    words = [f"w{number}" for number in range(40)]
    text = " ".join(words)
    document = {"prompt": text} if endpoint == "completions" else {"messages": [{"role": "user", "content": text}]}
    ask = read_ask(endpoint, json.dumps(document).encode(), blocks=True)  # type: ignore[arg-type]
    server = ReferenceServer(behaviour, loop, None)
    assert [server.begin(ask, at)[2] - at for at in (0, 50)] == [1000 + 400, 1000 + 80]
    batch = read_ask("completions", json.dumps({"prompt": [[7] * 10, [8] * 100]}).encode(), blocks=True)
    assert [server.begin(batch, 0)[2] for _ in range(2)] == [1000 + 1100, 1000 + 10 * (10 + 4)]
    page = server.metrics().decode()
    assert "known_prefix_cache_queries_total 300" in page
    assert "known_prefix_cache_hits_total 128" in page
    without = ReferenceServer(replace(behaviour, cache_tokens=0), loop, None)
    assert [without.begin(replace(ask, blocks=()), at)[2] - at for at in (0, 50)] == [1400, 1400]
    loop.close()
