"""The project's C++ rules: rules_cc's, with the flags and habits that all our code shares."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

# For files with OpenMP pragmas; their target also depends on @openmp.
OPENMP_COPTS = ["-fopenmp"]

def cria_cc_library(name, copts = [], **kwargs):
    """A library: about one header each, private unless it says otherwise."""
    cc_library(name = name, copts = WARNINGS + copts, **kwargs)

def cria_cc_binary(name, copts = [], **kwargs):
    """A program. Its source is called <name>_main.cc or <name>.cc."""
    cc_binary(name = name, copts = WARNINGS + copts, **kwargs)

def cria_cc_test(name, deps = [], copts = [], size = "small", timeout = "short", **kwargs):
    """A GoogleTest program. Its time limit is the suite's (.bazelrc): machines differ."""
    cc_test(
        name = name,
        copts = WARNINGS + copts,
        size = size,
        timeout = timeout,
        deps = deps + [
            "@gtest",
            "@gtest_main",
        ],
        **kwargs
    )

def cria_fuzz_target(name, deps):
    """A reader under hostile input, <name>_target.cc (tests/fuzz/README.md), compiled twice.

    <name>_test replays damaged copies of its seeds; <name>_fuzz is libFuzzer's program, which only
    --config=fuzz links.
    """
    cria_cc_library(
        name = name + "_target",
        testonly = True,
        srcs = [name + "_target.cc"],
        deps = deps + ["//tests/fuzz:fuzz_target"],
        alwayslink = True,
    )
    cria_cc_test(
        name = name + "_test",
        deps = [
            ":" + name + "_target",
            "//tests/fuzz:replay",
        ],
    )
    cria_cc_binary(
        name = name + "_fuzz",
        testonly = True,
        srcs = ["//tests/fuzz:fuzz_main.cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [
            ":" + name + "_target",
            "//tests/fuzz:fuzz_target",
        ],
    )

# One source compiled once for each instruction set. The source wraps its code in
# `namespace CRIA_ISA { ... }`; which copy runs is decided once, at start (base/cpu.h).
_ISAS = {
    "avx2": [
        "-mavx2",
        "-mfma",
        "-mf16c",
    ],
    "avx512": [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx2",
        "-mfma",
        "-mf16c",
        "-mprefer-vector-width=512",
    ],
    "generic": [],
}

def cria_isa_library(name, srcs, copts = [], hdrs = [], visibility = None, **kwargs):
    """A library whose sources are compiled for each instruction set that we dispatch between."""
    for isa, flags in _ISAS.items():
        cc_library(
            name = name + "_" + isa,
            srcs = srcs,
            hdrs = hdrs,
            copts = WARNINGS + copts + flags + [
                "-O3",
                "-DCRIA_ISA=" + isa,
            ],
            visibility = ["//tests:__subpackages__"],
            **kwargs
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        visibility = visibility,
        deps = [name + "_" + isa for isa in _ISAS],
    )
