"""Lines in the style of public training programs, a few of each, with what a person reads in them.

In a line, {e} is the epoch, {s} the step (a hundred of them in each epoch), {l} the training loss, {v} the validation
loss, {a} a score that rises, {h} a hundred times that score, {t} a clock, {r} the learning rate.
"""
# ruff: noqa: E501  (lines are as long as programs print them)

from __future__ import annotations

EPOCHS = tuple(range(1, 7))

BY_EPOCH: dict[str, list[float]] = {
    "l": [round(2 / e, 4) for e in EPOCHS],
    "v": [round(3 / e, 4) for e in EPOCHS],
    "a": [e / 10 for e in EPOCHS],
    "h": [10.0 * e for e in EPOCHS],
    "r": [0.001 for _ in EPOCHS],
}
WITHIN = {"e": list(EPOCHS), "s": [100 * e for e in EPOCHS]}


def printed(form: tuple[str, ...]) -> str:
    """The text of a form: what stands above, then the lines of each epoch."""
    head, line = ("", *form)[-2:]
    return head + "".join(
        line.format(
            e=e, s=100 * e, l=f"{2 / e:.4f}", v=f"{3 / e:.4f}", a=f"{e / 10:.3f}", h=f"{10 * e:.1f}",
            t=f"2024-05-01 10:{e:02}:07", r="1.0e-03",
        )
        for e in EPOCHS
    )  # fmt: skip


# name: (text above, lines of an epoch), {series: (what its steps are, what its values are)}
FORMS: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, str]]]] = {
    "minGPT": (("epoch 1 iter {s}: train loss {l}. lr {r}\n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "char-rnn": (("{s}/2750 (epoch 0.0{e}), train_loss = {l}, grad/param norm = 5.1e-01, time/batch = 0.62s\n",), {"loss": ("s", "l")}),
    "pix2pix": (("progress  epoch 1  step {s}  image/sec 11.1  remaining 100m\ndiscrim_loss {l}\ngen_loss_GAN {v}\ngen_loss_L1 {a}\n",), {"discrim_loss": ("s", "l"), "gen_loss_L1": ("s", "a")}),
    "fast neural style": (("Mon Feb  6 10:0{e}:00 2017\tEpoch 1:\t[{s}/40504]\tcontent: {l}\tstyle: {v}\ttotal: {v}\n",), {"content": ("s", "l"), "style": ("s", "v")}),
    "deep Q of Baselines": (("--------------------------------------\n| % time spent exploring  | 98       |\n| episodes                | {s}      |\n| mean 100 episode reward | {h}     |\n| steps                   | 20{s}    |\n--------------------------------------\n",), {"mean 100 episode reward": ("", "h")}),
    "A2C": (("Updates {e}, num timesteps {s}, FPS 300 \n Last 10 training episodes: mean/median reward {h}/11.0, min/max reward 1.0/20.0\n\n",), {"mean reward": ("", "h")}),
    "fastText": (("Progress:  {h}% words/sec/thread:   12345 lr:  0.050000 avg.loss:  {l} ETA:   0h 0m 9s\r",), {"loss": ("", "l")}),
    "Tacotron 2": (("Train loss {s} {l} Grad Norm 1.234567 2.34s/it\nValidation loss {s}: {v}  \n",), {"loss": ("s", "l"), "val_loss": ("s", "v")}),
    "flashlight": (("epoch: {e} | nupdates: {s} | lr: 0.001000 | lrcriterion: 0.000000 | runtime: 00:10:00 | bch(ms): 600.10 | fwd(ms): 200.01 | loss: {l} | train-TER: 80.10 | train-WER: 90.10 | dev-clean-loss: {v} | dev-clean-TER: {h} | hrs: 10.1\n",), {"loss": ("", "l"), "lr/0": ("", "r"), "dev-clean-TER": ("", "h")}),
    "DeepSpeech": (("Epoch {e} |   Training | Elapsed Time: 0:01:00 | Steps: 100 | Loss: {l}\nEpoch {e} | Validation | Elapsed Time: 0:00:10 | Steps: 20 | Loss: {v} | Dataset: dev.csv\n",), {"loss": ("", "l"), "val_loss": ("", "v")}),
    "checkpoints of Lightning": (("Epoch {e}, global step {s}: 'val_loss' reached {v} (best {v}), saving model to '/tmp/a-epoch={e}.ckpt' as top 1\n",), {"val_loss": ("s", "v")}),
    "AllenNLP": (("{t},123 - INFO - allennlp.training.trainer - Epoch {e}/9\n{t},123 - INFO - allennlp.training.tensorboard_writer -                        Training |  Validation\n{t},123 - INFO - allennlp.training.tensorboard_writer - accuracy           |     {a}  |     0.500\n{t},123 - INFO - allennlp.training.tensorboard_writer - loss               |     {l}  |     {v}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "flax": (("I0501 10:00:0{e}.123456 140735 train.py:140] epoch: {e:3}, train_loss: {l}, train_accuracy: {h}, test_loss: {v}, test_accuracy: 50.10\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "train_accuracy": ("e", "h")}),
    "MaxText": (("completed step: {s}, seconds: 1.234, TFLOP/s/device: 100.1, Tokens/s/device: 2000.0, total_weights: 65536, loss: {l}\n",), {"loss": ("s", "l")}),
    "GPT-NeoX": ((" samples/sec: 12.3 | iteration      {s}/  320000 | elapsed time per iteration (ms): 1234.5 | learning rate: 1.000E-03 | approx flops per GPU: 60.1TFLOPS | lm_loss: {l}E+00 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "Colossal-AI": (("[Epoch {e} / Train]: Loss = {l}, LR = 0.001, Throughput = 1000.1 sample/sec\n[Epoch {e} / Test]: Loss = {v}, Accuracy = {a}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "lr/0": ("e", "r")}),
    "OpenSeq2Seq": (("*** Global step {s}:     Train loss: {l}      \ntime per step = 0:00:00.123\n***     Sample source: a b 3 c\n",), {"loss": ("s", "l")}),
    "Theano": (("epoch {e}, minibatch 83/83, validation error {h} %\n     epoch {e}, minibatch 83/83, test error of best model 10.100000 %\n",), {"validation error": ("", "h")}),
    "Lasagne": (("Epoch {e} of 500 took 1.234s\n  training loss:\t\t{l}\n  validation loss:\t\t{v}\n  validation accuracy:\t\t{h} %\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "validation accuracy": ("e", "h")}),
    "nolearn": (("# Neural Network with 5390 learnable parameters\n\n  epoch    train loss    valid loss    train/val    valid acc  dur\n-------  ------------  ------------  -----------  -----------  -----\n", "      {e}       \x1b[36m{l}\x1b[0m        \x1b[32m{v}\x1b[0m      0.66667      {a}  0.11s\n"), {"loss": ("e", "l"), "val_loss": ("e", "v"), "valid acc": ("e", "a")}),
    "Chainer's table": (("\x1b[Jepoch       iteration   main/loss   validation/main/loss  main/accuracy  elapsed_time\n", "\x1b[J     total [..................................................]  1.23%\nthis epoch [##................................................]  5.00%\n       {s} iter, 0 epoch / 20 epochs\n    108.82 iters/sec. Estimated time to finish: 0:01:50.\n\x1b[4A\x1b[J{e}           {s}         {l}      {v}                {a}          2.55\n"), {"loss": ("s", "l"), "val_loss": ("s", "v")}),
    "fb.resnet.torch": ((" | Epoch: [{e}][100/391]    Time 0.120  Data 0.001  Err {l}  top1  {h}  top5  33.100\n * Finished epoch # {e}     top1:  50.100  top5:  25.100\n\n",), {"loss": ("", "l"), "top1": ("", "h")}),
    "segmentation models": (("Epoch: {e}\ntrain: 100%|██████████| 46/46 [00:30<00:00,  1.5it/s, dice_loss - {l}, iou_score - {a}]\nvalid: 100%|██████████| 12/12 [00:05<00:00,  2.1it/s, dice_loss - {v}, iou_score - 0.5]\n\n",), {"loss": ("", "l"), "val_loss": ("", "v"), "iou_score": ("", "a")}),
    "Kaggle's loop": (("Epoch: [{e}][100/101] Elapsed 0m 30s (remain 2m 0s) Loss: 0.9123({l}) Grad: 12345.6718  LR: 0.00100000  \nEVAL: [100/101] Elapsed 0m 5s (remain 0m 0s) Loss: 0.0512({v}) \nEpoch {e} - avg_train_loss: {l}  avg_val_loss: {v}  time: 60s\nEpoch {e} - Score: {a}\n",), {"avg_val_loss": ("", "v"), "Score": ("", "a")}),
    "EfficientDet": (("Step: {s}. Epoch: 0/10. Iteration: {s}/5000. Cls loss: {l}. Reg loss: {v}. Total loss: {l}: \n",), {"loss": ("s", "l"), "Reg loss": ("s", "v")}),
    "text recognition": (("[{s}/300000] Train loss: {l}, Valid loss: {v}, Elapsed_time: 100.12345\nCurrent_accuracy : {h}, Current_norm_ED  : {a}\nBest_accuracy    : 95.123, Best_norm_ED     : 0.99\n------------------\nGround Truth | Prediction | Confidence Score & T/F\n------------------\nab3 | ab3 | 0.1234\tTrue\n",), {"loss": ("s", "l"), "val_loss": ("s", "v"), "Current_accuracy": ("s", "h")}),
    "SRGAN": (("[{e}/100] Loss_D: {l} Loss_G: {v} D(x): {a} D(G(z)): 0.3000: 100%|██████████| 261/261 [00:30<00:00,  8.5it/s]\n",), {"Loss_D": ("", "l"), "Loss_G": ("", "v"), "D(x)": ("", "a")}),
    "sd-scripts": (("steps:   1%|▏         | {s}/16000 [00:10<30:00,  1.01s/it, avr_loss={l}]\r",), {"loss": ("s", "l")}),
    "ParlAI": (("10:00:0{e} | time:{e}s total_exs:{s} total_steps:{s} epochs:0.10 time_left:99s\n    ctxl  ctpb  ctps  exs  gnorm  loss        lr  ppl  token_acc  total_train_updates\n    28.1   900  2000  128   1.50  {l}  1.0e-03   18.2      {a}                 {s}\n\n",), {"loss": ("s", "l"), "lr/0": ("s", "r"), "token_acc": ("s", "a")}),
    "Rasa": (("Epochs:  10%|█         | {e}/100 [00:10<00:50,  1.9it/s, t_loss={l}, m_acc=0.5, i_acc={a}]\r",), {"loss": ("e", "l"), "i_acc": ("e", "a")}),
    "MXNet": (("INFO:root:Epoch[{e}] Batch [0-20]\tSpeed: 1000.12 samples/sec\taccuracy=0.5\nINFO:root:Epoch[{e}] Train-accuracy={a}\nINFO:root:Epoch[{e}] Time cost=10.123\nINFO:root:Epoch[{e}] Validation-accuracy=0.9\n",), {"Train-accuracy": ("", "a")}),
    "GluonCV": (("[Epoch {e}][Batch 49], Speed: 100.123 samples/sec, CrossEntropy={l}, SmoothL1=0.4\n[Epoch {e}] Training cost: 100.123, CrossEntropy={l}, SmoothL1={v}\n[Epoch {e}] Validation: \naeroplane=0.5\nbicycle=0.6\nmAP={a}\n",), {"mAP": ("", "a"), "SmoothL1": ("", "")}),
    "Keras in one line": (("Epoch {e}/6\n469/469 - 2s - loss: {l} - accuracy: {a} - val_loss: {v} - val_accuracy: 0.5000 - 2s/epoch - 4ms/step\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "accuracy": ("e", "a")}),
    "Keras in one line, older": (("Epoch {e}/6\n - 10s - loss: {l} - acc: {a} - val_loss: {v} - val_acc: 0.5000\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "acc": ("e", "a")}),
    "a perceptron of scikit-learn": (("Iteration {e}, loss = {l}\nValidation score: {a}\n",), {"loss": ("e", "l"), "Validation score": ("e", "a")}),
    "gradient boosting of scikit-learn": (("      Iter       Train Loss      OOB Improve   Remaining Time \n", "         {e}           {l}           0.0500            1.20m\n"), {"loss": ("e", "l")}),
    "luz": (("Epoch {e}/6\nTrain metrics: Loss: {l} - Acc: {a}\nValid metrics: Loss: {v} - Acc: 0.85\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "Acc": ("e", "a")}),
    "Julia": (("┌ Info: Epoch {e}\n│   train_loss = {l}\n│   test_loss = {v}\n└   test_acc = {a}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v"), "test_acc": ("e", "a")}),
    "PyTorch Geometric": (("Epoch: {e:03d}, Loss: {l}, Train: {a}, Val: 0.1380, Test: 0.1420\n",), {"loss": ("e", "l"), "Train": ("e", "a")}),
    "DGL": (("Epoch {e:05d} | Time(s) 0.0123 | Loss {l} | Accuracy {a} | ETputs(KTEPS) 800.12\n",), {"loss": ("e", "l"), "Accuracy": ("e", "a")}),
    "Dopamine": (("INFO:tensorflow:Starting iteration {e}\nSteps executed: 64 Episode length: 64 Return: 1.0\rINFO:tensorflow:Average undiscounted return per training episode: {h}\nINFO:tensorflow:Average training steps per second: 125.12\nINFO:tensorflow:Average undiscounted return per evaluation episode: {a}\n",), {"Average undiscounted return per training episode": ("e", "h")}),
    "rlkit": (("{t} | [run] Epoch {e} finished\n--------------------------------  -------------\ntrainer/QF1 Loss                      {l}\ntrainer/Policy Loss                  -3.2\nevaluation/Average Returns            {h}\nEpoch                                 {e}\n--------------------------------  -------------\n",), {"trainer/QF1 Loss": ("e", "l"), "evaluation/Average Returns": ("e", "h")}),
    "ML-Agents": (("[INFO] 3DBall. Step: {s}. Time Elapsed: 30.123 s. Mean Reward: {h}. Std of Reward: 0.700. Training.\n",), {"Mean Reward": ("s", "h"), "Std of Reward": ("s", "")}),
    "lczero": (("step {s}, lr=0.001 policy={l} value={v} policy accuracy={h}% mse={a} reg=0.1 total=8.2 (1000.12 pos/s)\n",), {"policy": ("s", "l"), "value": ("s", "v"), "mse": ("s", "a"), "loss": ("s", "")}),
    "HiFi-GAN": (("Steps : {s}, Gen Loss Total : {v}, Mel-Spec. Error : {l}, s/b : 0.512\n",), {"loss": ("s", "v")}),
    "DLLogger": (("DLL {t}.123 - Training Epoch: 0 Training Iteration: {s}  average_loss : 1.5 step_loss : {l}  learning_rate : {r} \n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "MLPerf": ((':::MLLOG {{"namespace": "", "time_ms": 171455{e}, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": {a}, "metadata": {{"file": "/a/b.py", "lineno": 120, "epoch_num": {e}}}}}\n',), {"eval_accuracy": ("e", "a")}),
    "llama.cpp": (("train_opt_callback: iter={s} sample=9/1000 sched=0.010000 loss={l} dt=00:01:00 eta=00:10:00 |->\n",), {"loss": ("s", "l")}),
    "MLX": (("Iter {s}: Val loss {v}, Val took 10.123s\nIter {s}: Train loss {l}, Learning Rate 1.000e-03, It/sec 1.200, Tokens/sec 500.123, Trained Tokens 5000, Peak mem 10.123 GB\n",), {"loss": ("s", "l"), "val_loss": ("s", "v"), "lr/0": ("s", "r")}),
    "tch-rs": (("epoch:    {e} train loss:  {l} test acc: {h}%\n",), {"loss": ("e", "l"), "test acc": ("e", "h")}),
    "candle": (("   {e} train loss:  {l} test acc: {h}%\n",), {"loss": ("e", "l"), "test acc": ("e", "h")}),
    "dlib": (("step#: {s:<7}  learning rate: 0.001   average loss: {l}   steps without apparent progress: 10\n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "CNTK": (("Finished Epoch[{e} of 300]: [Training] loss = {l} * 50000, metric = {h}% * 50000 10.123s (5000.1 samples/s);\nFinished Evaluation [{e}]: Minibatch[1-79]: metric = 50.00% * 10000;\n",), {"loss": ("e", "l"), "metric": ("e", "h")}),
    "MATLAB": (("|========================================================================================|\n|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |  Base Learning  |\n|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |      Rate       |\n|========================================================================================|\n", "|  {e:6} | {s:11} |       00:00:01 |        {h}% |       {l} |          0.0010 |\n"), {"loss": ("s", "l")}),
    "Tesseract": (("At iteration {s}/{s}/{s}, Mean rms={l}%, delta=30.123%, char train={h}%, word train=99.123%, skip ratio=0%,  New worst char error = 90.123 wrote checkpoint.\n\n",), {"Mean rms": ("s", "l"), "char train": ("s", "h")}),
    "Joey NMT": (("{t},123 - INFO - joeynmt.training - Epoch   1, Step: {s:8}, Batch Loss: {l:>12}, Batch Acc: {a}, Tokens per Sec:     1000, Lr: 0.001000\n{t},123 - INFO - joeynmt.prediction - Evaluation result (greedy): bleu:  {h}, loss: {v}, ppl:  20.12, acc: 0.50, duration: 30.12s\n",), {"loss": ("s", "l"), "lr/0": ("s", "r"), "val_loss": ("s", "v")}),
    "OpenNMT in Lua": (("[05/01/24 10:00:0{e} INFO] Epoch 1 ; Iteration {s}/10000 ; Optim SGD LR 0.001000 ; Source tokens/s 1000 ; Perplexity {h}\n",), {"Perplexity": ("s", "h")}),
    "WeNet": (("{t},123 DEBUG TRAIN Batch {e}/100 loss 9.500000 loss_att 8.123 loss_ctc 12.123 lr 0.00100000 rank 0\n{t},123 INFO Epoch {e} CV info cv_loss {v}\n",), {"cv_loss": ("", "v")}),
    "VoxCeleb trainer": (("{t} Epoch {e}, TEER/TAcc {h}, TLOSS {l}, LR 0.001000\n",), {"loss": ("e", "l"), "lr/0": ("e", "r")}),
    "OpenCLIP": (("{t} | INFO | Train Epoch: 0 [{s:6}/100000 (1%)] Data (t): 0.123 Batch (t): 0.512, 500.123/s, 62.5/s/gpu LR: 0.001000 Logit Scale: 14.286 Contrastive_loss: {l} (5.2) Loss: {l} (5.2)\n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "NeRF": (("[TRAIN] Iter: {s} Loss: {l}  PSNR: {h}\n",), {"loss": ("s", "l"), "PSNR": ("s", "h")}),
    "Gaussian splatting": (("Training progress:  10%|█         | {s}/30000 [01:00<09:00, 50.12it/s, Loss={l}, Depth Loss=0.0000000]\r",), {"loss": ("s", "l")}),
    "DeepXDE": (("Step      Train loss              Test loss               Test metric\n", "{s:<9} [{l}, 2.00e-01]      [{v}, 2.10e-01]      []\n"), {"loss": ("s", ""), "val_loss": ("s", "")}),
    "DeePMD": (("#  step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn         lr\n", "{s:7}      {v}     {l}      2.5e-01     2.4e-01    1.0e-03\n"), {"val_loss": ("s", "v"), "loss": ("s", "l"), "lr/0": ("s", "r")}),
    "MACE": (("{t}.123 INFO: Epoch {e}: head: default, loss={l:>8}, RMSE_E_per_atom=   10.12 meV, RMSE_F=  {h} meV / A\n",), {"loss": ("e", "l"), "RMSE_F": ("e", "h")}),
    "ignite's handlers": (("Training Results - Epoch: {e}  Avg accuracy: {a} Avg loss: {l}\nValidation Results - Epoch: {e}  Avg accuracy: 0.50 Avg loss: {v}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "numbers with percent signs": (("Epoch {e}: train {h}% / val 50.0% / loss {l}\n",), {"loss": ("e", "l"), "train": ("e", "h")}),
    "a slash between two losses": (("[{e}/50] train/val loss: {l}/{v}\n",), {"loss": ("e", "l")}),
    "pairs in parentheses": (("step={s} (loss={l}) (lr={r}) (time=3.1s)\n",), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
    "tabs and no colon": (("{s}\tloss\t{l}\tacc\t{a}\n",), {"loss": ("s", "l"), "acc": ("s", "a")}),
    "pytorch lightning table": (("────────────────────────────\n      Validate metric           DataLoader 0\n────────────────────────────\n        val_acc             0.{e}\n       val_loss            {v}\n────────────────────────────\n",), {"val_loss": ("", "v")}),
    "ANSI box": (("╭──────────────┬────────╮\n│ epoch        │ {e}      │\n│ train/loss   │ {l} │\n│ val/loss     │ {v} │\n╰──────────────┴────────╯\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "a dictionary of Python": (("Epoch {e}: {{'loss': {l}, 'val': {{'loss': {v}, 'acc': {a}}}}}\n",), {"loss": ("e", "l")}),
    "loss in parentheses behind": (("Epoch {e} | loss (train): {l} | loss (val): {v}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "an arrow": (("epoch {e} -> loss {l} -> val_loss {v}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "from and to": (("[{t}] [epoch={e}][train] loss -> {l}\n[{t}] [epoch={e}][val] loss -> {v}\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "epoch and step as one number": (("ep{e:03d} it{s:05d} | loss {l} | val {v}\n",), {"loss": ("s", "l")}),
    "sentence": (("After epoch {e}, the training loss is {l} and the validation loss is {v}.\n",), {"loss": ("e", "l"), "val_loss": ("e", "v")}),
    "key value pairs of logfmt": (('time="{t}" level=info msg="train step" step={s} loss={l} lr={r} tokens_per_sec=1000\n',), {"loss": ("s", "l"), "lr/0": ("s", "r")}),
}  # fmt: skip
