"""Prints nfc_table.cc: the canonical decompositions and combining classes that nfc.h works with.

    python3 trainer/tokenizer/nfc_table.py > trainer/tokenizer/nfc_table.cc

From Python's own unicodedata (of Unicode 13 or later: their common part never changes), without
what Unicode 10 and later added, since the package tokenizers, whose ids are the aim, normalizes by
the tables of Unicode 9.
"""

import unicodedata

# Combining marks that came with Unicode 10 or later, first and last.
NEW_MARKS = """7FD 7FD 898 89F 8CA 8D3 9FE 9FE C3C C3C D3B D3C EBA EBA 1715 1715 1ABF 1ACE 1DF6 1DFA
A82C A82C 10D24 10D27 10EAB 10EAC 10EFD 10EFF 10F46 10F50 10F82 10F85 11070 11070 1133B 1133B
1145E 1145E 11839 1183A 1193D 1193E 11943 11943 119E0 119E0 11A34 11A34 11A47 11A47 11A99 11A99
11D42 11D42 11D44 11D45 11D97 11D97 11F41 11F42 16FF0 16FF1 1E08F 1E08F 1E130 1E136 1E2AE 1E2AE
1E2EC 1E2EF 1E4EC 1E4EF""".split()
# Decompositions that came later: of U+11938 with Unicode 13, the others with Unicode 16.
NEW_DECOMPOSITIONS = {0x11938, 0x105C9, 0x105E4, *range(0x11380, 0x113D0), *range(0x16121, 0x16129),
                      *range(0x16D67, 0x16D6B)}


def is_new(code_point):
    bounds = [int(text, 16) for text in NEW_MARKS]
    return any(a <= code_point <= b for a, b in zip(bounds[::2], bounds[1::2]))


def decompositions():
    """(code point, its canonical decomposition of one or two, whether composing gives it back)."""
    for c in range(0x110000):
        mapping = unicodedata.decomposition(chr(c))
        if not mapping or mapping.startswith("<") or c in NEW_DECOMPOSITIONS:
            continue
        parts = [int(part, 16) for part in mapping.split()]
        composes = len(parts) == 2 and unicodedata.normalize("NFC", chr(c)) == chr(c)
        yield c, parts, composes


def runs(items):
    """Neighbours in one list: [(first code point, [values])]."""
    out = []
    for code_point, value in items:
        if not out or out[-1][0] + len(out[-1][1]) != code_point:
            out.append((code_point, []))
        out[-1][1].append(value)
    return out


def print_array(declaration, words):
    print(f"{declaration} = {{")
    line = "   "
    for word in words:
        if len(line) + len(word) + 2 > 100:
            print(line)
            line = "   "
        line += f" {word},"
    print(line)
    print("};")


def main():
    print("// Made by nfc_table.py; see there.\n")
    print('#include "trainer/tokenizer/nfc_table.h"\n')
    print("namespace cria::trainer::nfc_internal {\nnamespace {\n")
    print("// clang-format off")
    table = list(decompositions())
    kinds = [
        ("kOne", "To one character.", [(c, p) for c, p, _ in table if len(p) == 1]),
        ("kTwo", "To two characters that compose again.", [(c, p) for c, p, k in table if k]),
        ("kOnly", "To two characters that stay two.",
         [(c, p) for c, p, k in table if len(p) == 2 and not k]),
    ]
    for name, comment, items in kinds:
        grouped = runs(items)
        print(f"// {comment}")
        print_array(f"constexpr Run {name}Runs[]",
                    [f"{{0x{first:X}, {len(values)}}}" for first, values in grouped])
        print_array(f"constexpr uint32_t {name}[]",
                    [f"0x{part:X}" for _, values in grouped for parts in values for part in parts])
        print()
    classes = [(c, unicodedata.combining(chr(c))) for c in range(0x110000)
               if unicodedata.combining(chr(c)) and not is_new(c)]
    merged = []
    for c, value in classes:
        if merged and merged[-1][1] + 1 == c and merged[-1][2] == value:
            merged[-1][1] = c
        else:
            merged.append([c, c, value])
    print_array("constexpr ClassRange kClasses[]",
                [f"{{0x{a:X}, 0x{b:X}, {value}}}" for a, b, value in merged])
    print("""// clang-format on

}  // namespace

const Tables& GetTables() {
  static constexpr Tables tables = {kOneRuns, kOne, kTwoRuns, kTwo, kOnlyRuns, kOnly, kClasses};
  return tables;
}

}  // namespace cria::trainer::nfc_internal""")


if __name__ == "__main__":
    main()
