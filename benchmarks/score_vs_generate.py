"""Speed-up of scoring answers over generating them: questions per second of one local language model in both modes.

The model has random weights; it generates the maximum number of tokens, which a trained model often does not. Both
modes take turns. Label quality is not measured. Run it with: python benchmarks/score_vs_generate.py
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from record import about, command_line, load_average, write

from laurel.llm.chat import ChatRequest, Message, Reply, Sampling
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import LocalModel, load_model
from laurel.llm.local_prompts import Prompt, PromptReader
from laurel.params.judges import HuggingFaceParams

ROOT = Path(__file__).resolve().parent
TARGET = 10.0
REPEATS = 3
SCORED, WRITTEN = 256, 26
REASONING = 128
"""Maximum tokens of `generate`: reasoning, then an answer."""
SYSTEM = (
    "You judge what an agent does in a small world of rooms, keys and doors. The goal is to open the locked door and "
    "to reach the green square behind it. The agent sees only what lies before it. It can turn, walk, pick up what "
    "lies in front of it, drop what it carries, and open doors, for which it may need a key. You are shown two "
    "messages that say what changed in one step. Bumping into walls, turning back and forth, and putting down a key "
    "that is still needed are bad news. Finding a key, opening a door and getting closer to the goal are good news. "
    "If neither tells more about success than the other, both are as good. Judge the messages alone. "
    "Answer with 1 if the first message is better, and with 2 if the second message is better."
)
THINGS = ("the door", "a wall", "the yellow key", "a red ball", "the green square", "a grey box", "a blue door")
DEEDS = (
    "You bump into",
    "You turn to",
    "You pick up",
    "You walk up to",
    "You put down",
    "You see",
    "You lose sight of",
)


def main() -> None:
    """Measure both, print the result and write it."""
    command_line(__doc__).parse_args()
    torch.set_num_threads(1)  # more would wait for each other on a machine that others use, too
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as directory:
        local = _model(Path(directory))
        chat = LocalChat(local, HuggingFaceParams().batch_tokens)
        choices = ("1", "2")
        scored = [ChatRequest(_messages(i), choices=choices) for i in range(SCORED)]
        written = [ChatRequest(_messages(i), Sampling(max_tokens=REASONING)) for i in range(WRITTEN)]
        _speed(chat, scored[:16])  # what is done for the first time counts for neither
        _speed(chat, written[:1])
        of_score, of_generate = [], []
        for _ in range(REPEATS):
            of_score.append(_speed(chat, scored))
            of_generate.append(_speed(chat, written))
        reader = PromptReader(local)
        tokens = [prompt.tokens for prompt in map(reader.read, range(SCORED), scored) if isinstance(prompt, Prompt)]
    shared = next(i for i, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1)
    question_tokens = round(statistics.mean(map(len, tokens)) - shared)
    speed, peer = statistics.median(of_score), statistics.median(of_generate)
    found = {
        "value": round(speed / peer, 1),
        "unit": "times the questions per second by scoring compared with generating",
        "target": f">= {TARGET:g}",
        "met": speed / peer >= TARGET,
        "peer": f"questions per second of the same model writing {REASONING} tokens for each",
        "peer_value": round(peer, 2),
        "scored": f"{speed:.1f} questions a second",
        "prompt": f"{shared} shared tokens and {question_tokens} of its own on average",
        "model": "Llama, 8 layers of width 256, random weights, float32",
    }
    remarks = f"one thread on {local.device}", load
    write("score_vs_generate", found, about("torch", "transformers", "laurel-rl", remarks=remarks))


def _model(folder: Path) -> LocalModel:
    sys.path.insert(0, str(ROOT.parent / "tests" / "llm"))
    from tiny_llama import make_tiny_llama

    make_tiny_llama(
        folder,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.02,
    )
    return load_model(HuggingFaceParams(model=str(folder)))


def _messages(i: int) -> tuple[Message, ...]:
    """Return the i-th of the pairs, whose texts are of different lengths."""

    def text(j: int) -> str:
        words = [f"{DEEDS[(j + k) % 7]} {THINGS[(j // 7 + k) % 7]}." for k in range(1 + j % 2)]
        return " ".join(words)

    return Message("system", SYSTEM), Message("user", f"First: {text(i)}\nSecond: {text(3 * i + 5)}\nAnswer:")


def _speed(chat: LocalChat, requests: list[ChatRequest]) -> float:
    """Return how many requests are answered in a second, all of them with an answer of full length."""
    started = time.perf_counter()
    answers = [answer for _, answer in chat.ask(requests)]
    seconds = time.perf_counter() - started
    for answer, request in zip(answers, requests, strict=True):
        assert isinstance(answer, Reply)
        assert answer.logprobs or answer.output_tokens == request.sampling.max_tokens
    return len(requests) / seconds


if __name__ == "__main__":
    main()
