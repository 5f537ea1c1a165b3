"""Lines in the style of training programs, for the general reader and the newer dialects, and what is read from them."""
# ruff: noqa: E501  (lines are as long as programs print them)

from __future__ import annotations

PROGRAMS: dict[str, tuple[str, str, dict[str, list[tuple[int, float]]]]] = {
    "torchtitan": (
        "[rank0]:[titan] 2025-10-30 14:32:58,897 - root - INFO - step:  1  loss:  8.1661  grad_norm:  3.6855  memory:  2.47GiB(3.12%)  "
        "tps: 3,502  tflops: 1.90  mfu: 0.19%\n"
        "[rank0]:\x1b[31m[titan] 2025-10-30 14:32:58,990 - root - INFO - step: 10  loss:  6.1098  grad_norm:  4.6416  memory:  "
        "2.49GiB(3.14%)  tps: 177,138  tflops: 96.17  mfu: 9.72%\x1b[39m\n",
        "text",
        {"loss": [(1, 8.1661), (10, 6.1098)], "grad_norm": [(1, 3.6855), (10, 4.6416)]},
    ),
    "OLMo": (
        "2024-08-06 09:59:26.181 host:0  olmo.train:908  INFO    [step=1/739328,epoch=0]\n    optim/total_grad_norm=231.7\n"
        "    train/CrossEntropyLoss=12.18\n    train/Perplexity=195,153\n    throughput/total_tokens=1,048,576\n"
        "2024-08-06 10:00:05.520 host:0  olmo.train:908  INFO    [step=2/739328,epoch=0]\n    optim/total_grad_norm=0.0002\n"
        "    train/CrossEntropyLoss=1.5e-06\n    train/Perplexity=1.000\n",
        "text",
        {"loss": [(1, 12.18), (2, 1.5e-06)], "grad_norm": [(1, 231.7), (2, 0.0002)]},
    ),
    "Composer": (
        "[batch=1/4800]:\n\t Train time/batch: 0\n\t Train loss/train/total: 11.9\n\t Train metrics/train/LanguageCrossEntropy: 11.9\n"
        "[batch=2/4800]:\n\t Train time/batch: 1\n\t Train loss/train/total: 11.5\n\t Train metrics/train/LanguageCrossEntropy: 11.5\n",
        "text",
        {"loss": [(1, 11.9), (2, 11.5)]},
    ),
    "LitGPT": (
        "Epoch 1 | iter 1 step 0 | loss train: 3.724, val: n/a | iter time: 45.73 ms\n"
        "Epoch 1 | iter 2 step 1 | loss train: 3.5, val: 3.6 | iter time: 45.73 ms (step) remaining time: 0:01:00\n"
        "iter 2: val loss 3.6, val time: 1234.56 ms\n",
        "text",
        {"loss": [(1, 3.724), (2, 3.5)], "val_loss": [(2, 3.6)]},
    ),
    "PyTorch's MNIST example": (
        "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.3\nTrain Epoch: 1 [640/60000 (1%)]\tLoss: 1.8\n\n"
        "Test set: Average loss: 0.05, Accuracy: 9820/10000 (98%)\n\nTrain Epoch: 2 [0/60000 (0%)]\tLoss: 0.2\n",
        "text",
        {"loss": [(0, 2.3), (640, 1.8), (60000, 0.2)], "val_loss": [(640, 0.05)]},
    ),
    "PyTorch's ImageNet example": (
        "Epoch: [0][   1/5005]\tTime 23.300 (23.300)\tData 18.800 (18.800)\tLoss 7.05e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)\n"
        "Epoch: [0][  11/5005]\tTime  0.300 ( 2.300)\tData  0.000 ( 1.800)\tLoss 7.01e+00 (7.0e+00)\tAcc@1   0.00 (  0.20)\n"
        "Test: [  1/196]\tTime  8.1 ( 8.1)\tLoss 5.5e+00 (5.5e+00)\tAcc@1   9.00 (  9.00)\n"
        "Test: [196/196]\tTime  8.1 ( 8.1)\tLoss 5.1e+00 (5.9e+00)\tAcc@1   9.00 (  9.00)\n"
        "Epoch: [1][   1/5005]\tTime 23.300 (23.300)\tData 18.800 (18.800)\tLoss 5.05e+00 (5.0e+00)\tAcc@1   0.00 (  0.00)\n",
        "text",
        {"loss": [(1, 7.05), (11, 7.01), (5006, 5.05)], "val_loss": [(11, 5.9)]},
    ),
    "transfer learning tutorial": (
        "Epoch 0/24\n----------\ntrain Loss: 0.65 Acc: 0.70\nval Loss: 0.31 Acc: 0.88\n\nEpoch 1/24\n----------\ntrain Loss: 0.55 Acc: 0.72\nval Loss: 0.28 Acc: 0.90\n",
        "text",
        {"loss": [(0, 0.65), (1, 0.55)], "val_loss": [(0, 0.31), (1, 0.28)]},
    ),
    "timm": (
        "Train: 0 [   0/1251 (  0%)]  Loss: 6.95 (6.95)  Time: 12.1s,   84.1/s  (12.1s,   84.1/s)  LR: 1.000e-06  Data: 9.1 (9.1)\n"
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.94)  Time: 0.4s, 2400.1/s  (0.6s, 1600.1/s)  LR: 1.000e-06  Data: 0.0 (0.2)\n"
        "Test: [   0/48]  Time: 5.1 (5.1)  Loss:   6.90 (6.90)  Acc@1:   0.10 (  0.10)  Acc@5:   0.50 (  0.50)\n"
        "Test: [  48/48]  Time: 0.1 (0.3)  Loss:   6.80 (6.85)  Acc@1:   0.20 (  0.15)  Acc@5:   0.90 (  0.70)\n"
        "Train: 1 [   0/1251 (  0%)]  Loss: 6.85 (6.85)  Time: 12.1s,   84.1/s  (12.1s,   84.1/s)  LR: 8.000e-05  Data: 9.1 (9.1)\n",
        "text",
        {"loss": [(0, 6.95), (50, 6.93), (1251, 6.85)], "val_loss": [(50, 6.85)], "lr/0": [(0, 1e-06), (50, 1e-06), (1251, 8e-05)]},
    ),
    "mmdetection": (
        "2021-08-18 19:36:00,257 - mmdet - INFO - Epoch [1][50/5808]\tlr: 1.000e-02, eta: 5:02:49, time: 0.784, data_time: 0.085, "
        "memory: 8104, loss_rpn_cls: 0.4233, loss_cls: 0.88, acc: 91.4893, loss: 1.6522, grad_norm: 3.1\n"
        "2021-08-18 19:36:36,093 - mmdet - INFO - Epoch [2][100/5808]\tlr: 1.000e-03, eta: 1 day, 4:49:14, time: 0.717, data_time: 0.020, "
        "memory: 8104, loss_rpn_cls: 0.3281, loss_cls: 0.41, acc: 93.2749, loss: nan, grad_norm: nan\n",
        "text",
        {"loss": [(50, 1.6522), (5908, float("nan"))], "lr/0": [(50, 0.01), (5908, 0.001)], "grad_norm": [(50, 3.1), (5908, float("nan"))]},
    ),
    "mmengine": (
        "08/03 22:09:24 - mmengine - INFO - Epoch(train)  [1][ 500/2931]  lr: 2.0000e-02  eta: 0:39:15  time: 0.0578  data_time: 0.0017  "
        "memory: 2389  loss: 1.5  loss_cls: 0.9  acc: 0.0000\n"
        "08/03 22:09:54 - mmengine - INFO - Epoch(train)  [1][1000/2931]  lr: 2.0000e-02  eta: 0:39:15  time: 0.0578  data_time: 0.0017  "
        "memory: 2389  loss: 1.4  loss_cls: 0.8  acc: 0.0000\n",
        "text",
        {"loss": [(500, 1.5), (1000, 1.4)], "lr/0": [(500, 0.02), (1000, 0.02)]},
    ),
    "detectron2": (
        "[08/14 10:26:13 d2.utils.events]:  eta: 0:43:51  iter: 6319  total_loss: 0.4072  loss_cls: 0.06762  loss_box_reg: 0.05153  "
        "time: 0.4464  data_time: 0.0375  lr: 0.0003  max_mem: 1962M\n"
        "[08/14 10:26:23 d2.utils.events]:  eta: 0:43:46  iter: 6339  total_loss: 0.4602  loss_cls: 0.07815  loss_box_reg: 0.06772  "
        "time: 0.4465  data_time: 0.0297  lr: 0.0003  max_mem: 1962M\n",
        "text",
        {"loss": [(6319, 0.4072), (6339, 0.4602)], "lr/0": [(6319, 0.0003), (6339, 0.0003)]},
    ),
    "maskrcnn-benchmark": (
        "2019-04-20 17:25:55,002 maskrcnn_benchmark.trainer INFO: eta: 8:00:58  iter: 60  loss: 5.9007 (5.6273)  loss_cls: 0.1 (0.6047)  "
        "time: 0.2908 (0.2888)  lr: 0.003333  max mem: 2082\n"
        "2019-04-20 17:26:00,684 maskrcnn_benchmark.trainer INFO: eta: 7:58:57  iter: 80  loss: 5.2060 (5.8029)  loss_cls: 0.2 (1.0287)  "
        "time: 0.2801 (0.2876)  lr: 0.003333  max mem: 2082\n",
        "text",
        {"loss": [(60, 5.9007), (80, 5.206)], "lr/0": [(60, 0.003333), (80, 0.003333)]},
    ),
    "torchvision's MetricLogger": (
        "Epoch: [0]  [  0/100]  eta: 0:10:00  lr: 0.1  img/s: 30.1  loss: 2.3 (2.4)  acc1: 10.0 (11.0)  time: 0.5  data: 0.1\n"
        "Epoch: [1]  [ 10/100]  eta: 0:10:00  lr: 0.1  img/s: 30.1  loss: 2.0 (2.1)  acc1: 12.0 (13.0)  time: 0.5  data: 0.1\n",
        "text",
        {"loss": [(0, 2.3), (110, 2.0)]},
    ),
    "PaddleOCR": (
        "[2024/06/22 06:28:25] ppocr INFO: epoch: [4/500], global_step: 172, lr: 0.000100, loss: 1.5, loss_shrink_maps: 0.1, "
        "avg_reader_cost: 0.04024 s, ips: 17.53771 samples/s, eta: 2:48:41\n"
        "[2024/06/22 06:28:30] ppocr INFO: epoch: [5/500], global_step: 180, lr: 0.000200, loss: 1.4, loss_shrink_maps: 0.1, "
        "avg_reader_cost: 0.35601 s, ips: 15.32489 samples/s, eta: 2:49:22\n",
        "text",
        {"loss": [(172, 1.5), (180, 1.4)], "lr/0": [(172, 0.0001), (180, 0.0002)]},
    ),
    "PaddleClas": (
        "[2021/11/01] ppcls INFO: [Train][Epoch 1/120][Iter: 0/500]lr(LinearWarmup): 0.0001, top1: 0.0, CELoss: 6.9, loss: 6.9, batch_cost: 1.1s\n"
        "[2021/11/01] ppcls INFO: [Train][Epoch 1/120][Iter: 10/500]lr(LinearWarmup): 0.0002, top1: 0.0, CELoss: 6.8, loss: 6.8, batch_cost: 1.1s\n",
        "text",
        {"loss": [(0, 6.9), (10, 6.8)]},
    ),
    "ESPnet": (
        "[PC] 2020-11-11 16:58:28,197 (trainer:486) INFO: 1epoch:train:1-375batch: iter_time=0.001, forward_time=0.005, loss_ctc=9.1, "
        "loss=1.281, backward_time=0.005, optim0_lr0=0.1, train_time=0.014\n"
        "[PC] 2020-11-11 16:58:33,417 (trainer:486) INFO: 1epoch:train:376-750batch: iter_time=0.001, forward_time=0.005, loss_ctc=8.1, "
        "loss=1.2, backward_time=0.005, optim0_lr0=0.1, train_time=0.014\n"
        "[PC] 2020-11-11 16:50:06,620 (trainer:243) INFO: 1epoch results: [train] iter_time=0.001, loss=1.24, time=1 minute and 45.56 seconds, "
        "total_count=90084, [valid] loss=1.792, time=3.14 seconds, total_count=2880\n",
        "text",
        {"val_loss": [(750, 1.792)], "lr/0": [(375, 0.1), (750, 0.1)]},
    ),
    "Lightning's bar": (
        "Epoch 0:  50%|█████     | 1/2 [00:08<02:29,  8.77s/it]\rEpoch 0:  50%|█████     | 1/2 [00:08<02:29,  8.77s/it, loss=10.4, v_num=35a4]"
        "\rEpoch 0: 100%|██████████| 2/2 [00:11<01:33,  5.82s/it, loss=10.4, v_num=35a4]"
        "\rEpoch 0: 100%|██████████| 2/2 [00:11<01:33,  5.82s/it, loss=10.2, v_num=35a4]\n"
        "Epoch 1:  50%|█████     | 1/2 [00:08<02:29,  8.77s/it, loss=9.9, v_num=35a4]\n",
        "text",
        {"loss": [(1, 10.4), (2, 10.2), (3, 9.9)]},
    ),
    "a bar of tqdm": (
        "  1%|▏         | 10/1000 [00:05<08:20,  1.98it/s, loss=2.31]\r  2%|▏         | 20/1000 [00:10<08:15,  1.98it/s, loss=2.2]\r",
        "text",
        {"loss": [(10, 2.31), (20, 2.2)]},
    ),
    "TensorFlow 1": (
        "INFO:tensorflow:global step 1: loss = 79.3501 (57.126 sec/step)\nINFO:tensorflow:global_step/sec: 0.0339311\n"
        "INFO:tensorflow:global step 2: loss = 72.8609 (17.053 sec/step)\n",
        "text",
        {"loss": [(1, 79.3501), (2, 72.8609)]},
    ),
    "TensorFlow object detection": (
        "INFO:tensorflow:Step 100 per-step time 0.813s loss=1.396\nINFO:tensorflow:Step 200 per-step time 0.831s loss=1.192\n",
        "text",
        {"loss": [(100, 1.396), (200, 1.192)]},
    ),
    "SpeechBrain": (
        "epoch: 1, lr: 1.00e+00 - train loss: 2.33 - valid loss: 1.52, valid WER: 30.5\nepoch: 2, lr: 9.00e-01 - train loss: 1.93 - valid loss: 1.42, valid WER: 28.5\n",
        "text",
        {"loss": [(1, 2.33), (2, 1.93)], "val_loss": [(1, 1.52), (2, 1.42)], "lr/0": [(1, 1.0), (2, 0.9)]},
    ),
    "Ignite": (
        "Epoch[1] Iteration[100/938] Loss: 0.52\nEpoch[1] Iteration[200/938] Loss: 0.41\n",
        "text",
        {"loss": [(100, 0.52), (200, 0.41)]},
    ),
    "a tutorial's loop": (
        "Epoch [1/5], Step [100/600], Loss: 2.3\nEpoch [1/5], Step [600/600], Loss: 1.3\nEpoch [2/5], Step [100/600], Loss: 1.1\n",
        "text",
        {"loss": [(100, 2.3), (600, 1.3), (700, 1.1)]},
    ),
    "numbers first": (
        "0 | loss 11.6250 | lr 3.000000e-04 | 104573.61ms\n10 | loss 9.3750 | lr 3.000000e-04 | 13597.70ms\n",
        "text",
        {"loss": [(0, 11.625), (10, 9.375)], "lr/0": [(0, 0.0003), (10, 0.0003)]},
    ),
    "train and validation in one line": (
        "step 1,000: train loss 2.9, val loss 3.1, lr 0.0003\nstep 2,000: train loss 2.7, val loss 3.0, lr 0.0003\n",
        "nanogpt",
        {"val_loss": [(1000, 3.1), (2000, 3.0)]},
    ),
    "JSON within lines": (
        '2024-01-01 00:00:00 INFO metrics {"step": 10, "loss": 2.5, "lr": 0.1}\n2024-01-01 00:00:01 INFO metrics {"step": 20, "loss": 2.4, "lr": 0.1}\n',
        "text",
        {"loss": [(10, 2.5), (20, 2.4)], "lr/0": [(10, 0.1), (20, 0.1)]},
    ),
    "OpenNMT": (
        "[2021-01-01 10:00:00,000 INFO] Step 50/100000; acc:   3.12; ppl: 9999.12; xent: 9.21; lr: 0.00001; 1234/1234 tok/s;     30 sec\n"
        "[2021-01-01 10:00:30,000 INFO] Step 100/100000; acc:   5.12; ppl: 5999.12; xent: 8.70; lr: 0.00002; 1234/1234 tok/s;     60 sec\n",
        "text",
        {"loss": [(50, 9.21), (100, 8.7)], "lr/0": [(50, 1e-05), (100, 2e-05)]},
    ),
    "PyTorch's quickstart": (
        "Epoch 1\n-------------------------------\nloss: 2.303494  [   64/60000]\nloss: 2.294637  [ 6464/60000]\nTest Error: \n Accuracy: 50.9%, Avg loss: 2.15 \n\n"
        "Epoch 2\n-------------------------------\nloss: 2.1  [   64/60000]\nTest Error: \n Accuracy: 55.9%, Avg loss: 1.95 \n",
        "text",
        {"loss": [(64, 2.303494), (6464, 2.294637), (60064, 2.1)], "val_loss": [(6464, 2.15), (60064, 1.95)]},
    ),
    "PyTorch's CIFAR tutorial": (
        "[1,  2000] loss: 2.193\n[1,  4000] loss: 1.85\n[2,  2000] loss: 1.5\n",
        "text",
        {"loss": [(2000, 2.193), (4000, 1.85), (6000, 1.5)]},
    ),
    "icefall": (
        "2022-01-01 INFO [train.py:800] Epoch 1, batch 50, loss[loss=7.1, simple_loss=0.9, over 1000 frames. ], tot_loss[loss=7.5, over 10000 frames.], lr: 3.00e-03\n"
        "2022-01-01 INFO [train.py:800] Epoch 1, batch 100, loss[loss=6.1, simple_loss=0.9, over 1000 frames. ], tot_loss[loss=6.5, over 10000 frames.], lr: 3.00e-03\n"
        "2022-01-01 INFO [train.py:840] Epoch 1, validation: loss=5.5, simple_loss=0.5, over 9000 frames.\n",
        "text",
        {"loss": [(50, 7.1), (100, 6.1)], "val_loss": [(100, 5.5)]},
    ),
    "Swin": (
        "[2021-04-01 10:00:00 swin](main.py 200): INFO Train: [0/300][10/1251]\teta 1:00:00 lr 0.000001\ttime 0.5 (0.6)\tloss 6.9 (6.91)\tgrad_norm 1.2 (1.3)\tmem 10000MB\n"
        "[2021-04-01 10:00:10 swin](main.py 200): INFO Train: [1/300][20/1251]\teta 1:00:00 lr 0.000002\ttime 0.5 (0.6)\tloss 6.8 (6.9)\tgrad_norm 1.1 (1.3)\tmem 10000MB\n",
        "text",
        {"loss": [(10, 6.9), (1271, 6.8)], "lr/0": [(10, 1e-06), (1271, 2e-06)], "grad_norm": [(10, 1.2), (1271, 1.1)]},
    ),
    "diffusers": (
        "Steps:   0%|          | 1/10000 [00:10<28:00:00, 10.1s/it, lr=1e-5, step_loss=0.123]\rSteps:   0%|          | 2/10000 [00:11<18:00:00, 5.1s/it, lr=1e-5, step_loss=0.2]\n",
        "text",
        {"loss": [(1, 0.123), (2, 0.2)], "lr/0": [(1, 1e-05), (2, 1e-05)]},
    ),
    "Caffe": (
        "I0101 10:00:00.000 1 solver.cpp:218] Iteration 0 (0 iter/s, 0s/100 iters), loss = 2.4\nI0101 10:00:10.000 1 solver.cpp:218] Iteration 100 (10 iter/s, 10s/100 iters), loss = 0.4\n"
        "I0101 10:00:10.000 1 solver.cpp:330] Iteration 100, Testing net (#0)\nI0101 10:00:11.000 1 solver.cpp:397]     Test net output #1: loss = 0.5 (* 1 = 0.5 loss)\n",
        "text",
        {"loss": [(0, 2.4), (100, 0.4)], "val_loss": [(100, 0.5)]},
    ),
    "nnU-Net": (
        "2024-01-01 10:00:00.123456: Epoch 0\n2024-01-01 10:01:00.123456: train_loss -0.1234\n2024-01-01 10:01:00.123456: val_loss -0.2345\n"
        "2024-01-01 10:01:01.123456: Epoch 1\n2024-01-01 10:02:00.123456: train_loss -0.3\n2024-01-01 10:02:00.123456: val_loss -0.4\n",
        "text",
        {"loss": [(0, -0.1234), (1, -0.3)], "val_loss": [(0, -0.2345), (1, -0.4)]},
    ),
    "Marian": (
        "[2021-01-01 10:00:00] Ep. 1 : Up. 500 : Sen. 10,000 : Cost 8.15 * 71,234 @ 1,234 after 71,234 : Time 12.31s : 3456.78 words/s : gNorm 1.25 : L.r. 1.0000e-04\n"
        "[2021-01-01 10:01:00] Ep. 1 : Up. 1000 : Sen. 20,000 : Cost 7.95 * 72,345 @ 1,134 after 143,579 : Time 12.11s : 3356.78 words/s : gNorm 1.15 : L.r. 2.0000e-04\n"
        "[2021-01-01 10:01:10] [valid] Ep. 1 : Up. 1000 : cross-entropy : 234.567 : new best\n",
        "text",
        {"loss": [(500, 8.15), (1000, 7.95)], "val_loss": [(1000, 234.567)], "lr/0": [(500, 0.0001), (1000, 0.0002)], "grad_norm": [(500, 1.25), (1000, 1.15)]},
    ),
    "Kaldi": (
        "LOG (nnet3-train[5.5.0~1-a1b2]:PrintStatsForThisPhase():nnet-training.cc:281) Average objective function for 'output' for minibatches 0-9 is -3.45 over 1280 frames.\n"
        "LOG (nnet3-train[5.5.0~1-a1b2]:PrintStatsForThisPhase():nnet-training.cc:281) Average objective function for 'output' for minibatches 10-19 is -3.05 over 1280 frames.\n"
        "LOG (nnet3-train[5.5.0~1-a1b2]:PrintTotalStats():nnet-training.cc:337) Overall average objective function for 'output' is -3.25 over 2560 frames.\n",
        "kaldi",
        {"loss": [(9, 3.45), (19, 3.05)]},
    ),
    "Stable-Baselines3": (
        "---------------------------------\n| rollout/           |          |\n|    ep_rew_mean     | 22.1     |\n| time/              |          |\n"
        "|    total_timesteps | 2048     |\n---------------------------------\n"
        "-----------------------------------------\n| rollout/                |             |\n|    ep_rew_mean          | 26.3        |\n"
        "| time/                   |             |\n|    total_timesteps      | 4096        |\n| train/                  |             |\n"
        "|    explained_variance   | -0.00223    |\n|    learning_rate        | 0.0003      |\n|    loss                 | 6.81        |\n-----------------------------------------\n",
        "boxes",
        {"loss": [(4096, 6.81)], "lr/0": [(4096, 0.0003)], "rollout/ep_rew_mean": [(2048, 22.1), (4096, 26.3)]},
    ),
    "JDE": (
        "2021-01-25 05:58:00 [INFO]:    Epoch       Batch       box      conf        id     total  nTargets      time\nimport SyncBn success\n"
        "2021-01-25 05:58:59 [INFO]:     0/29       0/165     0.227      2.06        19       158        83      59.6\n"
        "2021-01-25 06:04:17 [INFO]:     1/29      40/165     0.172      1.99      18.7      -149      81.4      7.12\n",
        "table",
        {"loss": [(0, 158.0), (205, -149.0)], "box": [(0, 0.227), (205, 0.172)]},
    ),
    "a table that gets another column": (
        "epoch     train_loss  valid_loss  time    \n0         1.5         1.2         00:12     \n"
        "epoch     train_loss  valid_loss  accuracy  time    \n1         1.1         1.0         0.6       00:12     \n",
        "table",
        {"loss": [(0, 1.5), (1, 1.1)], "accuracy": [(1, 0.6)]},
    ),
    "YOLOv7 results.txt": (
        "     0/299     14.2G   0.0651   0.0214   0.0182    0.1047        94       640    0.31    0.22   0.15   0.05   0.06  0.02  0.01\n"
        "     1/299     14.2G   0.0551   0.0204   0.0172    0.0927        81       640    0.32    0.25   0.18   0.06   0.05  0.02  0.01\n",
        "yolo-results",
        {"loss": [(0, 0.1047), (1, 0.0927)], "val_loss": [(0, 0.09), (1, 0.08)], "recall": [(0, 0.22), (1, 0.25)]},
    ),
    "PaddleDetection": (
        "[06/22 06:28:25] ppdet.engine INFO: Epoch: [0] [   0/1222] learning_rate: 0.000333 loss_xy: 1.2 loss: 61.3 eta: 15:38:50 batch_cost: 4.61 data_cost: 2.1 ips: 1.73 images/s\n"
        "[06/22 06:28:35] ppdet.engine INFO: Epoch: [1] [  20/1222] learning_rate: 0.000500 loss_xy: 1.1 loss: 21.3 eta: 15:38:50 batch_cost: 0.61 data_cost: 0.1 ips: 13.1 images/s\n",
        "text",
        {"loss": [(0, 61.3), (1242, 21.3)], "lr/0": [(0, 0.000333), (1242, 0.0005)]},
    ),
    "mmcv by iterations": (
        "2021-08-18 19:36:00,257 - mmseg - INFO - Iter [50/160000]\tlr: 9.997e-03, eta: 1 day, 5:02:49, time: 0.784, data_time: 0.085, memory: 8104, decode.loss_ce: 2.1, loss: 2.6522\n"
        "2021-08-18 19:36:36,093 - mmseg - INFO - Iter [100/160000]\tlr: 9.994e-03, eta: 1 day, 4:49:14, time: 0.717, data_time: 0.020, memory: 8104, decode.loss_ce: 1.9, loss: 2.4522\n",
        "text",
        {"loss": [(50, 2.6522), (100, 2.4522)], "lr/0": [(50, 0.009997), (100, 0.009994)]},
    ),
    "Keras with several outputs": (
        "Epoch 1/2\n100/100 [==============================] - 5s 2ms/step - loss: 1.5 - mask_loss: 1.0 - box_loss: 0.5 - val_loss: 1.2 - val_mask_loss: 0.8 - val_box_loss: 0.4\n"
        "Epoch 2/2\n100/100 [==============================] - 5s 2ms/step - loss: 0.9 - mask_loss: 0.6 - box_loss: 0.3 - val_loss: 1.0 - val_mask_loss: 0.7 - val_box_loss: 0.3\n",
        "keras",
        {"loss": [(1, 1.5), (2, 0.9)], "val_loss": [(1, 1.2), (2, 1.0)], "mask_loss": [(1, 1.0), (2, 0.6)]},
    ),
    "TRL": (
        "{'loss': 0.0, 'grad_norm': 0.31, 'learning_rate': 1e-06, 'completion_length': 143.5, 'rewards/format_reward': 0.25, 'reward': 0.25, 'reward_std': 0.1, 'kl': 0.0, 'epoch': 0.01}\n"
        "{'loss': 0.0001, 'grad_norm': 0.29, 'learning_rate': 9e-07, 'completion_length': 141.5, 'rewards/format_reward': 0.5, 'reward': 0.5, 'reward_std': 0.2, 'kl': 0.0003, 'epoch': 0.02}\n",
        "huggingface",
        {"loss": [(0, 0.0), (1, 0.0001)], "reward": [(0, 0.25), (1, 0.5)]},
    ),
    "Lightning 2": (
        "Epoch 0:  50%|█████     | 1/2 [00:08<00:08,  0.11it/s, v_num=0, train_loss=2.310]\rEpoch 0: 100%|██████████| 2/2 [00:11<00:00,  0.17it/s, v_num=0, train_loss=2.100]"
        "\rEpoch 1:  50%|█████     | 1/2 [00:08<00:08,  0.11it/s, v_num=0, train_loss=1.900, val_loss=2.000]\n",
        "text",
        {"loss": [(1, 2.31), (2, 2.1), (3, 1.9)], "val_loss": [(3, 2.0)]},
    ),
    "zero bytes, colours and a carriage return": (
        "\0\0\0\0\x1b[32mstep 1\x1b[0m loss: \x1b[1m2.5\x1b[0m\r\nstep 2 loss: 2.4\r\n",
        "text",
        {"loss": [(1, 2.5), (2, 2.4)]},
    ),
}  # fmt: skip
