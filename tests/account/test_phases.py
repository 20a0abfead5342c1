"""Steps of programs that generate tokens, found in what the device ran."""

from collections import Counter

import numpy as np
import pytest

from perfml.account.phases import Launches, class_layers, find_phases
from tests.support.servers import ARGMAX, NORM, SOFTMAX, Server, step


def kinds(server):
    return Counter(phase.kind for phase in find_phases(server.launches()))


def served(*, requests=3, steps=30, prompts=(700, 100, 700), graph=True, moe=False):
    server = Server()
    for request in range(requests):
        server.step(prompts[request], graph=False, moe=moe)
        for _ in range(steps):
            server.step(8, graph=graph, moe=moe)
    return server


@pytest.mark.parametrize("moe", [False, True])
@pytest.mark.parametrize("graph", [False, True])
def test_prompts_are_prefill_and_tokens_are_decode(graph, moe):
    assert kinds(served(graph=graph, moe=moe)) == {"prefill": 3, "decode": 90}


def test_a_step_is_what_lies_between_two_waits_for_the_host():
    server = served()
    for phase in find_phases(server.launches())[1:]:
        assert server.rows[phase.first][1] == 30.0
        assert server.rows[phase.end - 1][0] == ARGMAX


def test_graphs_of_several_batch_sizes_are_all_decode():
    server = Server()
    server.step(900, graph=False)
    for turn in range(30):
        server.step((8, 16, 24)[turn % 3], graph=True)
    assert kinds(server) == {"prefill": 1, "decode": 30}


def test_a_graph_for_each_half_layer_is_no_step():
    server = Server()
    for turn in range(40):
        tokens = 8 if turn % 20 else 600
        names = step(tokens)
        for place in range(0, len(names), 4):
            wait = 1.0 if place else 30.0
            # attention stays outside the graphs
            graph = tokens == 8 and (place // 4) % 2 == 0
            server.run(names[place : place + 4], tokens, graph=graph, wait=wait)
        server.run([SOFTMAX, ARGMAX], 1, graph=False)
    assert kinds(server) == {"prefill": 2, "decode": 38}


def test_sampling_inside_the_graph_is_the_end_of_the_step():
    server = Server()
    for _ in range(20):
        server.run([*step(8), ARGMAX], 8, graph=True, wait=30.0)
    assert kinds(server) == {"decode": 20}
    launches = server.launches()
    layers = class_layers(launches, find_phases(launches))
    assert layers[len(step(8))] == "decode/sampling"


def test_kernels_made_for_a_phase_say_what_a_step_is_for():
    server = Server()
    for turn in range(12):
        name = "flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(P)"
        names = [NORM, name, *(["flashinfer::SinglePrefillWithKVCacheKernel<1>(P)"] * (turn == 5))]
        server.run([*names, "nvjet_tst_64x8_64x16_2x1_v_bz_TNT", ARGMAX], 8, graph=False)
    assert kinds(server) == {"decode": 11, "mixed": 1}


def test_replays_that_choose_no_token_are_steps_and_no_decode():
    server = Server()
    for _ in range(20):
        server.step(8, graph=True, ends=False)
    assert kinds(server) == {"step": 20}


def test_what_follows_the_last_product_of_a_step_is_sampling():
    launches = served(requests=1).launches()
    layers = class_layers(launches, find_phases(launches))
    softmax = {layer for layer, name in zip(layers, launches.names, strict=True) if name == SOFTMAX}
    assert softmax == {"prefill/sampling", "decode/sampling"}


def test_without_steps_a_layer_is_a_class():
    launches = Launches([NORM, ARGMAX], *(np.ones(2) for _ in range(3)), np.full(2, -1))
    assert find_phases(launches) == ()
    assert class_layers(launches, ()) == ["norm", "sampling"]


@pytest.mark.parametrize("known", [True, False])
def test_a_training_loop_is_no_decode(known):
    server = Server()
    for _ in range(20):
        # the accuracy of a batch is an argmax, too; backward follows
        server.run([*step(64), SOFTMAX, ARGMAX, *step(64)[::-1]], 64, graph=False)
    launches = server.launches()
    if not known:
        nothing = np.full(len(launches.names), np.nan)
        launches = Launches(launches.names, nothing, nothing, launches.times, launches.replays)
    assert {phase.kind for phase in find_phases(launches)} <= {"step"}


def test_what_prepares_a_step_belongs_to_it():
    server = Server()
    server.run(["at::native::FillFunctor<int>(int)", "arange_kernel(int)"], 1, graph=False)
    for turn in range(20):
        server.step(700 if turn % 10 == 0 else 8, graph=False)
    assert kinds(server) == {"prefill": 2, "decode": 18}
