"""Tokenizers in the style of well-known models, and what the package tokenizers does with them.

    tokenizer_peer.py json FOLDER       texts.json: 10,000 seeded texts; a folder for each style
                                        with tokenizer.json and expected.json (ids, decoded texts)
    tokenizer_peer.py characters FOLDER the same of texts that have every character, in fewer styles
    tokenizer_peer.py tiktoken FOLDER   tokenizer.model from the tokenizer that FOLDER/learned.json
                                        is; the ids of FOLDER/texts.json in tiktoken_ids.json
"""

import base64
import json
import os
import random
import sys

try:
    import tiktoken
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, processors, trainers
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

ISOLATED = "isolated"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
).replace("{1,3}+", "{1,3}")
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        + CONTRACTIONS + "?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        + CONTRACTIONS + "?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CHUNKS = """the|The| and|'s|'S|'ſ|'ll|'LL|'lL|'ve|'re|'RE|'d|'m|'t|'|''|0|12|345|6789|3.14|1,000|x
HTTPServer|snake_case|f(x)->y;|//|{|}|!!|…|—|“|”|é|e\u0301|ß|İ|ǅ|ſ|中文|日本語|한국어
русский|العربية|हिन्दी|ไทย|Việt| Việt|Vie\u0323\u0302t|١٢٣|²|½|Ⅷ|😀|👨‍👩‍👧|🇩🇪
𝐀|Å|ﬁ|q\u0307\u0323|각|각|가\u11a8|ò|ñ
<|endoftext|>|<|im_start|>|<|im_end|>|<mask>|<|end|<||<s>|</s>|word|wordy|swords|sword|ab|bc|abc
def f(self):|return|#include <x>|a+=1|\\n|"quoted"|path/to/file.cc|0x1F|e-10|@user|#tag|$5|50%
Ｆｕｌｌ|¼|ª|º|µ|_|__|-|--|--->|===|;|:|?|¿|。|、|「|」|·|†|€|©|™|ー|々|ゝ|ﾊ|Ĳ|ŉ|ŀ|ǰ"""
CHUNKS = CHUNKS.replace("\n", "|").split("|")
SPACES = [" ", "  ", "   ", "        ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\v", "\f",
          "\u00a0", "\u0085", "\u2028", "\u3000", "\u180e", "\u200d", "\ufeff", "\u2003", "\u1680"]
UNUSUAL = ["\u0378", "\U000e0001", "\u1c89", "\U000105c0", "\U00011f02", "\U00010d40", "\U0002ebf0",
           "\U00031350", "\U00011dE0", "\u0897", "\U00011938", "\U00011935\U00011930", "\u0344",
           "\u0958", "\ufb1d", "\u2adc", "\uac00", "\u1100\u1161\u11a8", "\U0001d15e", "\u0300"]


def random_text(rng, length):
    out = []
    random_share = rng.randrange(4)
    for _ in range(rng.randrange(length + 1)):
        kind = rng.randrange(8)
        if kind < random_share:
            end = rng.choice([0x80, 0x100, 0x250, 0x370, 0x600, 0x1000, 0x3100, 0x10000, 0x110000])
            c = rng.randrange(end)
            unit = "x" if 0xD800 <= c < 0xE000 else chr(c)
        elif kind < 5:
            unit = rng.choice(CHUNKS)
        elif kind < 7:
            unit = rng.choice(SPACES)
        else:
            unit = rng.choice(UNUSUAL)
        out.append(unit * (1 + rng.randrange(40) if rng.randrange(12) == 0 else 1))
    return "".join(out)


def make_texts(count):
    rng = random.Random(2)
    texts = ["", " ", "\n", "a", " Việt", "'", "<|im_start|>", "This is a test sentence."]
    texts += ["a" * 3000, " " * 3000 + "x", "\n" * 3000, "7" * 3000]
    texts += ["e\u0301" * 900, "\u0300" * 900]
    while len(texts) < count:
        texts.append(random_text(rng, 400 if rng.randrange(100) == 0 else 25))
    return texts


def character_texts():
    """Every character apart and beside its neighbours; of the private ones a few."""
    texts = []
    for block in [*range(0, 0x324), *range(0xE00, 0xE02), 0xF00]:
        if not 0xD8 <= block < 0xF9:
            points = range(block * 256, block * 256 + 256)
            texts.append((" " if block % 2 else "a").join(map(chr, points)))
            texts.append("".join(map(chr, points)))
    return texts


def training_text():
    rng = random.Random(1)
    words = "the and of lord house king shall unto people earth water def return class".split()
    lines = []
    for _ in range(2500):
        line = " ".join(rng.choice(words) + rng.choice(["", "", "s", "ing", "ed", "'s", "!", ","])
                        for _ in range(12))
        if rng.randrange(4) == 0:
            line = "    for (int i = 0; i < %d; ++i) {  sum += x[i]; }" % rng.randrange(10000)
        if rng.randrange(6) == 0:
            line += rng.choice([" 中文字符", " русский язык", " é ò ñ", " 😀", " Việt", "  \t  "])
        lines.append(line + rng.choice(["\n", "\n\n", "\r\n"]))
    return lines


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern, behavior=ISOLATED, invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def make(steps, normalizer=None, specials=SPECIALS, added=(), post=None, unk=None, fuse=False,
         alphabet=True, size=700, ignore_merges=False, drop=""):
    tokenizer = Tokenizer(models.BPE(unk_token=unk, fuse_unk=fuse))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False,
        special_tokens=([unk] if unk else []) + list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    lines = training_text()
    if not alphabet:
        lines = ["".join(c for c in line if c.isascii() and c not in drop) for line in lines]
    tokenizer.train_from_iterator(lines, trainer)
    if ignore_merges:
        data = json.loads(tokenizer.to_str())
        data["model"]["ignore_merges"] = True
        # Tokens that no merge makes: only a whole piece is one.
        size = len(data["model"]["vocab"])
        for i, token in enumerate(["Ġunmerged", "wordy", "Ġè", "HTTPServer"]):
            data["model"]["vocab"][token] = size + i
        tokenizer = Tokenizer.from_str(json.dumps(data))
    for token in added:
        if token.special:
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def template(before, after=()):
    def build(tokenizer):
        names = [*before, *after]
        return processors.TemplateProcessing(
            single=" ".join([*before, "$A", *after]),
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in set(names)])
    return build


def pair_of(kind):
    def build(tokenizer):
        ends = [(name, tokenizer.token_to_id(name)) for name in ("<|im_end|>", "<|im_start|>")]
        return kind(*ends)
    return build


def flagged(normalizer=None):
    return make([byte_level(regex=True)], normalizer, added=[
        AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("sword", single_word=True, lstrip=True, rstrip=True, normalized=True),
        AddedToken("ab", normalized=True), AddedToken("bc", normalized=False),
        AddedToken("</s>", rstrip=True, special=True), AddedToken("a", single_word=True),
        AddedToken("é", normalized=True, single_word=True), AddedToken("   ", rstrip=True),
        AddedToken("<|end", lstrip=True, rstrip=True, normalized=False)])


def styles():
    spaces = [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]
    falcon = [pre_tokenizers.Punctuation("contiguous"), byte_level(regex=True),
              pre_tokenizers.Digits(False), split(Regex("[0-9][0-9][0-9]"))]
    deepseek2 = [split(Regex("[\r\n]")), split(Regex(r"\s?\p{L}+")), split(Regex(r"\s?\p{P}+")),
                 split(Regex("[一-龥ࠀ-一가-퟿]+")), pre_tokenizers.Digits(True), byte_level()]
    deepseek3 = [split(Regex(r"\p{N}{1,3}")), split(Regex("[一-龥぀-ゟ゠-ヿ]+")),
                 split(Regex(DEEPSEEK3)), byte_level()]
    yield "gpt2", lambda: make([byte_level(regex=True)])
    yield "roberta", lambda: make(
        [byte_level(True, True)], added=[AddedToken("<mask>", lstrip=True, special=True)],
        post=pair_of(processors.RobertaProcessing))
    yield "neox", lambda: make([byte_level(regex=True)], normalizers.NFC(), added=spaces)
    yield "phi", lambda: make([byte_level(regex=True)], added=[
        AddedToken(" " * n, normalized=False) for n in range(31, 1, -1)])
    yield "qwen2", lambda: make([split(Regex(QWEN2)), byte_level()], normalizers.NFC())
    yield "llama3", lambda: make([split(Regex(LLAMA3)), byte_level()], ignore_merges=True,
                                 post=template(["<|im_start|>"]))
    yield "gpt4", lambda: make([split(Regex(CL100K)), byte_level()])
    yield "gpt4o", lambda: make([split(Regex(O200K)), byte_level()])
    yield "starcoder", lambda: make([pre_tokenizers.Digits(True), byte_level(regex=True)])
    yield "falcon", lambda: make(falcon)
    yield "deepseek2", lambda: make(deepseek2, normalizers.Sequence([]))
    yield "deepseek3", lambda: make(deepseek3, post=template(["<|im_start|>"], ["<|im_end|>"]))
    yield "digits", lambda: make([pre_tokenizers.Digits(False), byte_level(True, True)])
    yield "whitespace", lambda: make([pre_tokenizers.WhitespaceSplit(), byte_level()])
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next",
                     "contiguous"):
        yield "regex_" + behavior, lambda b=behavior: make(
            [split(Regex("[aeiou ]"), b), byte_level()])
        yield "string_" + behavior, lambda b=behavior: make([split("e", b), byte_level(True)])
        yield "invert_" + behavior, lambda b=behavior: make(
            [split(Regex(r"\p{L}+|x*"), b, True), byte_level()])
        yield "punctuation_" + behavior, lambda b=behavior: make(
            [pre_tokenizers.Punctuation(b), byte_level()])
    yield "empty_matches", lambda: make([split(Regex(r"(?=\p{Lu})|x*|(?<=\n)"), ISOLATED),
                                         byte_level()])
    yield "classes", lambda: make([split(Regex(
        r"\b\w+\b|\d+|[\h]+|^\v|.$|[\w\d_]+|\p{Han}+|[\p{Katakana}\p{Hiragana}]|\W|(?m:..)"),
        "contiguous"), byte_level()])
    yield "flags", flagged
    yield "flags_nfc", lambda: flagged(normalizers.NFC())
    yield "flags_prepend", lambda: flagged(normalizers.Prepend("_"))
    yield "normalizers", lambda: make([byte_level(regex=True)], normalizers.Sequence([
        normalizers.NFD(), normalizers.Replace("e", "EE"),
        normalizers.Replace(Regex(r"\s+|\u0301"), " "), normalizers.Strip(left=True, right=False),
        normalizers.Prepend("▁x")]))
    yield "strip", lambda: make([byte_level()], normalizers.Sequence(
        [normalizers.Strip(left=False, right=True), normalizers.NFC()]))
    yield "unk", lambda: make([byte_level(regex=True)], unk="<unk>", alphabet=False)
    yield "unk_fused", lambda: make([byte_level()], unk="<unk>", fuse=True, alphabet=False)
    yield "dropped", lambda: make([byte_level(regex=True)], alphabet=False, drop="xyz")


def dump(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


# Styles of known models get all texts; those of single features the first quarter.
MODELS = """gpt2 roberta neox phi qwen2 llama3 gpt4 gpt4o starcoder falcon deepseek2
deepseek3""".split()
# Between them, these ask for every table of characters.
CHARACTERS = """qwen2 gpt4o starcoder deepseek3 punctuation_isolated classes flags_nfc
normalizers""".split()


def run(folder, texts, names):
    dump(os.path.join(folder, "texts.json"), texts)
    for name in names:
        tokenizer = dict(styles())[name]()
        count = len(texts) if name in MODELS or names == CHARACTERS else len(texts) // 4
        some = texts[:count]
        path = os.path.join(folder, name)
        os.mkdir(path)
        tokenizer.save(os.path.join(path, "tokenizer.json"), pretty=False)
        ids = [e.ids for e in tokenizer.encode_batch(some, add_special_tokens=False)]
        with_template = [e.ids for e in tokenizer.encode_batch(some[:300], add_special_tokens=True)]
        rng = random.Random(3)
        cut = [row[:rng.randrange(len(row) + 1)] for row in ids[:2500]]
        expected = {"ids": ids, "with_template": with_template, "cut": cut,
                    "decoded": tokenizer.decode_batch(cut, skip_special_tokens=False),
                    "decoded_skipping": tokenizer.decode_batch(cut, skip_special_tokens=True)}
        tokenizer.encode_special_tokens = True
        few = some[:2500]
        expected["plain"] = [e.ids for e in tokenizer.encode_batch(few, add_special_tokens=False)]
        dump(os.path.join(path, "expected.json"), expected)
    print(" ".join(names))


def token_bytes(text):
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable}
    table.update({chr(256 + i): b for i, b in enumerate(others)})
    return bytes(table[c] for c in text)


def run_tiktoken(folder):
    with open(os.path.join(folder, "learned.json"), encoding="utf-8") as file:
        learned = json.load(file)
    by_id = sorted((i, token) for token, i in learned["model"]["vocab"].items())
    tokens = [token_bytes(token) for _, token in by_id]
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as file:
        texts = json.load(file)
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        for rank, token in enumerate(tokens):
            file.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
    specials = {"<|begin_of_text|>": len(tokens), "<|end_of_text|>": len(tokens) + 1,
                "<|eot_id|>": len(tokens) + 9}
    encoding = tiktoken.Encoding("peer", pat_str=LLAMA3, special_tokens=specials,
                                 mergeable_ranks={token: i for i, token in enumerate(tokens)})
    dump(os.path.join(folder, "tiktoken_ids.json"),
         [encoding.encode(text, allowed_special="all") for text in texts])


if __name__ == "__main__":
    if sys.argv[1] == "json":
        run(sys.argv[2], make_texts(10000), [name for name, _ in styles()])
    elif sys.argv[1] == "characters":
        run(sys.argv[2], character_texts(), CHARACTERS)
    else:
        run_tiktoken(sys.argv[2])
