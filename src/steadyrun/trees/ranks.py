"""The ranks: whether the processes of one job agree. Asked of runs of several processes, also after a fault."""

from steadyrun.questions.form import Question, node
from steadyrun.questions.ranks import (
    r1_1_averaged,
    r1_2_replicas,
    r1_3_settings,
    r1_4_buffers,
    r1_5_whole_norm,
    r1_6_shards_differ,
    r2_1_different_data,
    r2_2_new_order,
    r2_3_equal_batches,
    r2_4_alike_data,
    r3_1_first_rank,
    r4_1_alive,
    r4_2_stragglers,
)

TREE: tuple[Question, ...] = (
    node(r1_1_averaged.QUESTION),
    node(r1_2_replicas.QUESTION),
    node(r1_3_settings.QUESTION),
    node(r1_4_buffers.QUESTION),
    node(r1_5_whole_norm.QUESTION),
    node(r1_6_shards_differ.QUESTION),
    node(r2_1_different_data.QUESTION),
    node(r2_2_new_order.QUESTION),
    node(r2_3_equal_batches.QUESTION),
    node(r2_4_alike_data.QUESTION),
    node(r3_1_first_rank.QUESTION),
    node(r4_1_alive.QUESTION),
    node(r4_2_stragglers.QUESTION),
)
