#!/usr/bin/env python3
"""Counts single test cases after `bazel test`, from its build events and GoogleTest's XML files.

Prints the skipped cases with their reasons, the failed ones with the start of their messages, and
one last line: "N passed, N failed, N skipped". A target that did not build, crashed or timed out
counts as one failed case. Exit status: 1 when anything failed.

    bazel test --build_event_json_file=events.json //...
    tools/test_summary.py --bazel-status $? events.json
"""

import argparse
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

NO_TESTS_FOUND = 4  # Bazel's exit status
INTERRUPTED = 8
MESSAGE_CHARS_MAX = 2000
CRASH_LOG_LINES = 20


def read_events(path):
    """Bazel's events; the last line may be cut off when Bazel was killed."""
    events = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                break
    return events


class Summary:
    def __init__(self):
        self.passed = 0
        self.failed = []  # (name, message)
        self.skipped = []

    def add_case(self, label, case):
        """One <testcase> of a test.xml file."""
        suite = case.get("classname")
        name = "%s %s" % (label, "%s.%s" % (suite, case.get("name")) if suite else case.get("name"))
        problems = case.findall("failure") + case.findall("error")
        skip = case.find("skipped")
        if problems:
            self.failed.append((name, message_of(problems[0])))
        elif skip is not None:
            self.skipped.append((name, reason_of(skip)))
        elif case.get("status") == "notrun":
            self.skipped.append((name, "disabled in the source"))
        else:
            self.passed += 1

    def add_target(self, label, results):
        """A target's last attempt of each shard: [(status, path of test.xml, path of test.log)]."""
        for status, xml_path, log_path in results:
            num_failed = len(self.failed)
            cases = cases_of(xml_path)
            for case in cases:
                self.add_case(label, case)
            if status in ("PASSED", "FLAKY"):
                continue
            if len(self.failed) == num_failed:
                self.failed.append((label, status.lower().replace("_", " ")))
            name, message = self.failed[-1]
            if not any(case.get("classname") for case in cases):
                # No GoogleTest wrote this: the program crashed or ran out of time.
                message += "\n" + end_of(log_path)
            if log_path:
                message += "\nlog: %s" % log_path
            self.failed[-1] = (name, message)


def cases_of(xml_path):
    try:
        return list(ElementTree.parse(xml_path).iter("testcase")) if xml_path else []
    except (OSError, ElementTree.ParseError):
        return []


def end_of(log_path):
    try:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-CRASH_LOG_LINES:]).rstrip()
    except (OSError, TypeError):
        return ""


def message_of(element):
    text = (element.get("message") or element.text or "").strip()
    return text[:MESSAGE_CHARS_MAX]


def reason_of(element):
    """GoogleTest writes "file:line", then the reason on its own lines."""
    lines = [line.strip() for line in message_of(element).splitlines() if line.strip()]
    return " ".join(lines[1:] or lines) or "no reason given"


def path_of(uri):
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def summarise(events):
    summary = Summary()
    results = {}  # label -> {(run, shard): (attempt, status, test.xml, test.log)}
    expected = []  # test targets, in Bazel's order
    not_built = {}
    for event in events:
        kind, ident = next(iter(event["id"].items()))
        label = ident.get("label") if isinstance(ident, dict) else None
        if kind == "targetConfigured" and event.get("configured", {}).get("testSize"):
            expected.append(label)
        elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
            aborted = event.get("aborted", {})
            not_built[label] = (aborted.get("reason"), aborted.get("description", ""))
        elif kind == "testResult" and "testResult" in event:
            result = event["testResult"]
            paths = {output.get("name"): path_of(output.get("uri", ""))
                     for output in result.get("testActionOutput", [])}
            shards = results.setdefault(label, {})
            key = (ident.get("run"), ident.get("shard"))
            attempt = ident.get("attempt", 1)
            if key not in shards or shards[key][0] < attempt:
                shards[key] = (attempt, result.get("status", "NO_STATUS"),
                               paths.get("test.xml"), paths.get("test.log"))
    for label in expected:
        if label in results:
            shards = results[label]
            summary.add_target(label, [shards[key][1:] for key in sorted(shards)])
        elif label in not_built and not_built[label][0] == "SKIPPED":
            summary.skipped.append((label, "not for this machine: %s" % not_built[label][1]))
        elif label in not_built:
            summary.failed.append((label, "did not build"))
        else:
            summary.failed.append((label, "did not run"))
    for label, (reason, _) in not_built.items():
        if label not in expected and reason != "SKIPPED":
            summary.failed.append((label, "did not build"))
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("events", help="the file of --build_event_json_file")
    parser.add_argument("--bazel-status", type=int, default=0, help="Bazel's exit status")
    arguments = parser.parse_args()

    summary = summarise(read_events(arguments.events))
    status = arguments.bazel_status
    if status not in (0, NO_TESTS_FOUND) and not summary.failed:
        reason = "interrupted" if status == INTERRUPTED else "see its messages above"
        summary.failed.append(("bazel test", "ended with status %d: %s" % (status, reason)))

    for title, cases in (("Skipped:", summary.skipped), ("Failed:", summary.failed)):
        if cases:
            print(title)
        for name, message in cases:
            print("  %s: %s" % (name, "\n    ".join(message.splitlines())))
    print("%d passed, %d failed, %d skipped" %
          (summary.passed, len(summary.failed), len(summary.skipped)))
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
