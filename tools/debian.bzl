"""Debian's packages as Bazel repositories. Nothing is downloaded; a missing package is named."""

_CC_FILES_TO_PATCH = [
    "cc/private/rules_impl/cc_flags_supplier.bzl",
    "cc/private/rules_impl/compiler_flag.bzl",
]

def _debian_rules_cc_impl(ctx):
    source = ctx.path("/usr/share/bazel/rules/cc")
    if not source.exists:
        fail("Bazel's C++ rules are missing: apt-get install bazel-rules-cc")
    result = ctx.execute(["cp", "-r", str(source) + "/.", "."])
    if result.return_code != 0:
        fail("copy %s: %s" % (source, result.stderr))
    for name in _CC_FILES_TO_PATCH:
        # Bazel 4.2.3 has no use_cpp_toolchain; the toolchain's type means the same.
        text = ctx.read(name)
        text = text.replace(', "use_cpp_toolchain"', "")
        text = text.replace("use_cpp_toolchain()", '["@bazel_tools//tools/cpp:toolchain_type"]')
        ctx.file(name, text)

debian_rules_cc = repository_rule(
    doc = "Debian's bazel-rules-cc, patched so that Debian's Bazel 4.2.3 can load it.",
    implementation = _debian_rules_cc_impl,
    local = True,
)

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "{name}",
    hdrs = glob(["include*/**/*.h"]),
    defines = {defines},
    includes = {includes},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _pkg_config_library_impl(ctx):
    result = ctx.execute(["pkg-config", "--cflags", "--libs"] + ctx.attr.packages)
    if result.return_code != 0:
        fail("pkg-config %s failed: apt-get install pkg-config %s (or run tools/setup.sh)\n%s" % (
            " ".join(ctx.attr.packages),
            ctx.attr.apt,
            result.stderr,
        ))
    linkopts = []
    defines = []
    includes = []
    for flag in [f for f in result.stdout.replace("\n", " ").split(" ") if f]:
        if flag.startswith("-D"):
            defines.append(flag[2:])
        elif flag.startswith("-I") and not flag.startswith("-I/usr/include"):
            # Bazel takes folders of the repository alone, so such a folder is linked into it.
            includes.append("include" + str(len(includes)))
            ctx.symlink(flag[2:], includes[-1])
        elif flag.startswith("-l") or flag.startswith("-L") or flag.startswith("-Wl,") or flag == "-pthread":
            if flag not in linkopts:
                linkopts.append(flag)
    ctx.file("BUILD", _BUILD.format(
        name = ctx.name,
        defines = defines,
        includes = includes,
        linkopts = linkopts,
    ))

pkg_config_library = repository_rule(
    doc = "One cc_library from pkg-config's answer, each link flag once. Label: @name.",
    implementation = _pkg_config_library_impl,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "the Debian package to install"),
        "packages": attr.string_list(mandatory = True, doc = "pkg-config module names"),
    },
    environ = ["PKG_CONFIG_PATH"],
    local = True,
)

def _system_library_impl(ctx):
    if ctx.attr.header:
        header = ctx.path("/usr/include/" + ctx.attr.header)
        if not header.exists:
            fail("%s is missing: apt-get install %s (or run tools/setup.sh)" % (header, ctx.attr.apt))
    ctx.file("BUILD", _BUILD.format(
        name = ctx.name,
        defines = [],
        includes = [],
        linkopts = ctx.attr.linkopts,
    ))

system_library = repository_rule(
    doc = "One cc_library for a package that has no pkg-config file. Label: @name.",
    implementation = _system_library_impl,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "the Debian package to install"),
        "header": attr.string(doc = "a header under /usr/include that must exist"),
        "linkopts": attr.string_list(),
    },
    local = True,
)
