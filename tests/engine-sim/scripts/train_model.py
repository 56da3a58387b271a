#!/usr/bin/env python3
"""Makes the simulator's model folder (../model): a small ByteLevel BPE tokenizer in Qwen's manner.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
    venv/bin/python scripts/train_model.py

Trained on the sources and language reference that come with Python, and on the sentences below (for
scripts other than Latin). The same Python and tokenizers give the same bytes: tokenizer.json in the
repository was made with CPython 3.11.7 and tokenizers 0.23.3. Only a trained vocabulary is stored, no text.
"""
import json, pathlib, pydoc_data.topics, sys, sysconfig
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "model"
VOCAB = 6000
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
STDLIB = ["argparse.py", "ast.py", "configparser.py", "datetime.py", "decimal.py", "difflib.py", "email/message.py",
          "http/client.py", "http/server.py", "json/encoder.py", "logging/__init__.py", "pathlib.py", "random.py",
          "statistics.py", "string.py", "subprocess.py", "tarfile.py", "textwrap.py", "threading.py", "typing.py",
          "unittest/case.py", "urllib/parse.py", "urllib/request.py", "zipfile.py"]
SENTENCES = """
Where is my parcel? It left the harbour on Tuesday and will arrive on Friday morning.
You are a careful assistant. Answer briefly, name your source, say when you do not know.
The customer wants to know how the weather will be tomorrow and whether the train is late.
Summarise the report, list the three most important findings and explain each of them.
Größe, Straße, Überraschung: das Wetter ist schön und die Sonne scheint über der alten Brücke.
Le café est fermé aujourd'hui, mais la bibliothèque reste ouverte jusqu'à huit heures.
El niño pequeño corre por la plaza y mañana volverá a la escuela con sus amigos.
Привет! Сегодня хорошая погода, и мы идём гулять в парк вместе с друзьями.
Καλημέρα, πού είναι το γράμμα που έστειλα την περασμένη εβδομάδα;
今天天气很好，我们一起去公园散步吧。请问这个城市最近的车站在哪里？谢谢你的帮助。
日本語のテストです。今日は天気がいいので、公園へ散歩に行きましょう。ありがとうございます。
안녕하세요. 오늘은 날씨가 좋아서 공원에 산책을 갑니다. 감사합니다.
مرحبا بالعالم، الطقس جميل اليوم وسنذهب إلى الحديقة معا. شكرا جزيلا.
नमस्ते, आज मौसम अच्छा है और हम बगीचे में घूमने जा रहे हैं। धन्यवाद।
สวัสดีครับ วันนี้อากาศดีมาก เราไปเดินเล่นที่สวนกันเถอะ ขอบคุณ
😀 😂 🚀 🔥 👍 🏠 🚚 ❤️ 👩‍👩‍👧‍👦 ✅ ⚠️ → ← ≠ ≤ ∞ ½ “quoted” ‘single’ — dash – en…
{"type": "function", "function": {"name": "get_weather", "description": "Look up the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
{"name": "track", "arguments": {"number": "4711", "deep": true, "limit": 10, "ratio": 0.5, "tags": ["a", "b"], "note": null}}
"""

def texts():
    yield from (v for _, v in sorted(pydoc_data.topics.topics.items()))
    lib = pathlib.Path(sysconfig.get_paths()["stdlib"])
    yield from ((lib / f).read_text(encoding="utf-8") for f in STDLIB)
    yield from [SENTENCES] * 40

def main():
    tok = Tokenizer(models.BPE(byte_fallback=False, fuse_unk=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tok.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=VOCAB, min_frequency=2, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    OUT.mkdir(exist_ok=True)
    (OUT / "tokenizer.json").write_text(json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    template = (OUT / "chat_template.jinja").read_text(encoding="utf-8")
    ids = {t: tok.token_to_id(t) for t in SPECIAL + ADDED}
    dump = lambda name, value: (OUT / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    dump("tokenizer_config.json", {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": t in SPECIAL} for t, i in ids.items()},
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None, "chat_template": template,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 131072, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None})
    dump("config.json", {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 131072,
        "vocab_size": tok.get_vocab_size(), "tie_word_embeddings": True, "torch_dtype": "float32"})
    dump("generation_config.json", {"bos_token_id": ids["<|endoftext|>"], "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|endoftext|>"], "do_sample": False})
    print("vocabulary", tok.get_vocab_size(), "bytes", (OUT / "tokenizer.json").stat().st_size, "Python", sys.version.split()[0])

main()
