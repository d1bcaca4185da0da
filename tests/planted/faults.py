#!/usr/bin/env python3
"""Plants faults in the CPU's kernels and the passes, one at a time, and looks whether `sluice eval FLOW --suite verify` finds each of them.

    tests/planted/faults.py [--only WORD] [--jobs N]            (about three minutes; `./dev planted` does the same)

Copies the sources (what git keeps or would) to build/planted, where a build of its own is kept between runs, and judges all the
flows there: each must pass. Then for each fault: puts it in, builds the program, judges the flow that shows it, and takes it out
again. The verdict must be incorrect_numerical. Exit 0 if all of this holds; 1 if a fault was missed, if a flow was refused without
one, or if the text that a fault replaces is not there exactly once: then the fault is to be planted anew.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / 'build' / 'planted'
BUILD = COPY / 'build'
MOST_SECONDS = 120  # that a verdict may take


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    flow: str  # a shipped one, or one of this folder


FAULTS = [
    # Which pages.
    Fault('positions are taken for pages', 'kernels/cpu/attention/attend.cpp',
          'chosen[i] = pages[positions[i]];', 'chosen[i] = positions[i];', 'block_topk'),
    Fault('the page behind the one selected', 'kernels/cpu/selection/topk_kernels.cpp',
          'hn::Iota(di, first + i);', 'hn::Iota(di, first + i + 1);', 'block_topk'),
    Fault('ties go to the higher page', 'kernels/cpu/selection/topk.cpp',
          '  return emit_above(keys_.data(), count, cut.key, cut.ties, begin, selected);',
          '''  std::reverse(keys_.begin(), keys_.begin() + count);
  const int taken = emit_above(keys_.data(), count, cut.key, cut.ties, 0, selected);
  for (int i = 0; i < taken; ++i) selected[i] = end - 1 - selected[i];
  std::reverse(selected, selected + taken);
  return taken;''', 'ties'),
    Fault('-0 ranks below 0', 'kernels/cpu/selection/topk_kernels.cpp',
          'hn::Add(score, hn::Zero(df))', 'score', 'ties'),
    Fault('NaN ranks above all numbers', 'kernels/cpu/selection/topk_kernels.cpp',
          'hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(score, score)), key), d, keys + i);',
          'hn::StoreU(hn::Or(key, hn::IfThenElseZero(hn::RebindMask(d, hn::Ne(score, score)), hn::Set(d, ~0U))), d, keys + i);',
          'not_a_number'),
    Fault('a share of the pages is rounded down', 'kernels/cpu/selection/topk.cpp',
          'std::ceil(attributes.ratio * pages)', 'std::floor(attributes.ratio * pages)', 'quest'),
    Fault('a window is a page short', 'kernels/cpu/selection/topk.cpp',
          'append_range(pages - attributes.last, pages, selected + count);\n}\n\nint select_union',
          'append_range(pages - attributes.last + 1, pages, selected + count);\n}\n\nint select_union', 'streaming'),
    Fault('a score that meets the bound passes it', 'kernels/cpu/selection/topk.cpp',
          'if (scores[page] > bound) selected[count++] = page;', 'if (scores[page] >= bound) selected[count++] = page;',
          'threshold'),
    Fault('chance decides beyond what is tolerated', 'kernels/cpu/selection/topk.cpp',
          'const bool exact = above < (1 - tolerate) * budget;', 'const bool exact = false;', 'approximate'),
    Fault('all pages are attended where one is left out', 'kernels/cpu/flow/flow.cpp',
          '(!needs_run && covers_all(pages))', '(!needs_run && covers_all(pages - 1))', 'all_but_one'),
    # Unions, and what passes make of them.
    Fault('a union loses its second part', 'kernels/cpu/flow/flow.cpp',
          'select_union(selection(0), selection(1), list)', 'select_union(selection(0), selection(0), list)', 'union'),
    Fault('a flattened union loses its last part', 'scripting/passes/unions.cpp',
          'for (size_t i = 1; i < united.size(); ++i) {', 'for (size_t i = 1; i + 1 < united.size(); ++i) {', 'nested_unions'),
    Fault('selections of different budgets are merged', 'scripting/passes/common.cpp',
          'static_cast<int>(a.compare), a.k, ', 'static_cast<int>(a.compare), 0, ', 'union'),
    Fault('a - b is merged with b - a', 'scripting/passes/common.cpp',
          'is_commutative(node.op) ||', 'is_commutative(node.op) || node.op == Op::kSub ||', 'union'),
    # States.
    Fault('a state forgets its newest page', 'kernels/cpu/flow/state.cpp',
          'seen_[block * entries_.size() + index] = pages;', 'seen_[block * entries_.size() + index] = pages - 1;', 'h2o'),
    Fault('a state stays stale every second step', 'kernels/cpu/flow/flow.cpp',
          'for (const NodeId save : program_.saves) keep(save, row, own);',
          'for (const NodeId save : program_.saves) { if (row.step % 2 == 0) keep(save, row, own); }', 'h2o'),
    Fault('a state without pages loses its last number', 'kernels/cpu/flow/state.cpp',
          'std::copy_n(values, entry.elements, kept);', 'std::copy_n(values, entry.elements - 1, kept);', 'smoothed_query'),
    # The newest page, which is ragged.
    Fault('a field takes in a token that is not there', 'kernels/cpu/flow/execute.cpp',
          'view.used = tile_.tokens;', 'view.used = std::min<int64_t>(view.extent, tile_.tokens + 1);', 'block_topk'),
    Fault('an empty group of tokens is 0', 'kernels/cpu/flow/execute.cpp',
          'std::copy_n(result - view.inner, view.inner, result);', 'std::fill_n(result, view.inner, 0.0F);', 'groups'),
    Fault('tokens that are not there are attended', 'kernels/cpu/attention/attend.cpp',
          'with_last ? last_tokens :', 'with_last && count == 0 ? last_tokens :', 'block_topk'),
    Fault('the newest token is not attended', 'kernels/cpu/attention/attention_decode.cpp',
          'kv.page - last_tokens : 0)', 'std::min(kv.page - 1, kv.page - last_tokens + 1) : 0)', 'block_topk'),
    Fault('fields stay stale while tokens are generated', 'kernels/cpu/device/device.cpp',
          'if (mine.plan().graph.fields.empty()) return;\n  const LayerPages& pages',
          'if (mine.plan().graph.fields.empty() || pass_.batch().decoding[0] != 0) return;\n  const LayerPages& pages', 'block_topk'),
    # Attention.
    Fault('query heads are swapped', 'kernels/cpu/attention/attention_decode.cpp',
          'float* output = out + h * dim;', 'float* output = out + (h ^ 1) * dim;', 'streaming'),
    Fault('the last piece of the tokens is lost', 'kernels/cpu/attention/attention_decode.cpp',
          'for (int i = 1; i < count; ++i) {', 'for (int i = 1; i + 1 < count; ++i) {', 'large_budget'),
    Fault('a larger score does not weigh down those before it', 'kernels/cpu/attention/attention_decode.cpp',
          'fall[h] = maximum[h] == value ? 0.0f : maximum[h] - value;', 'fall[h] = 0.0f;', 'streaming'),
    # Whose.
    Fault('the chance of another step', 'kernels/cpu/flow/execute.cpp',
          'row.kv_head, row.step);', 'row.kv_head, row.step - 1);', 'random'),
    Fault('the pages of KV head 0 are attended', 'kernels/cpu/attention/attend.cpp',
          'KvPages Attend::kv_pages(int kv_head) const {', 'KvPages Attend::kv_pages(int kv_head) const {\n  kv_head = 0;',
          'streaming'),
    Fault('the fields of KV head 0 are scored', 'kernels/cpu/attention/attend.cpp',
          'return {layer_->page(0, task.kv_head), layer_->page_stride', 'return {layer_->page(0, 0), layer_->page_stride', 'block_topk'),
    Fault('the keys of KV head 0 are stored for all', 'kernels/cpu/device/device.cpp',
          'store_as(layout.kv, keys + static_cast<int64_t>(head) * layout.head_dim,', 'store_as(layout.kv, keys,', 'block_topk'),
    Fault('the chance of KV head 0 is drawn for all', 'kernels/cpu/attention/attend.cpp',
          '.kv_head = task.kv_head,\n                    .step', '.kv_head = 0,\n                    .step', 'random'),
    Fault('the state of KV head 0 serves all', 'kernels/cpu/flow/state.cpp',
          'return int64_t{layer_blocks_[layer]} * kv_heads_ + kv_head;', 'return int64_t{layer_blocks_[layer]} * kv_heads_;',
          'h2o'),
    Fault('the pages of layer 0 are attended', 'kernels/cpu/device/device.cpp',
          'attend_.run(pass_, call, flow, q, out);',
          'Attention first = call;\n  first.layer = 0;\n  attend_.run(pass_, first, flow, q, out);', 'streaming'),
    Fault('the queries of the first request serve all', 'kernels/cpu/attention/attend.cpp',
          'float* Attend::query_of(int sequence, int kv_head) const {\n  return q_.row(pass_->batch().query_indptr[sequence])',
          'float* Attend::query_of(int sequence, int kv_head) const {\n  return q_.row(pass_->batch().query_indptr[0 * sequence])',
          'streaming'),
    Fault('the seed of the first request serves all', 'kernels/cpu/attention/attend.cpp',
          'batch.seeds[task.sequence]', 'batch.seeds[0]', 'random'),
    Fault('a state is shared by all requests', 'kernels/cpu/attention/attend.cpp',
          'batch.states[task.sequence]', 'batch.states[0]', 'smoothed_query'),
    Fault('every newest page is as full as the first request\'s', 'kernels/cpu/attention/attend.cpp',
          'task.sequence);\n  const float* query', '0);\n  const float* query', 'streaming'),
]


def path_of(flow):
    """What the program is given for a flow's name: the file of this folder, if there is one."""
    own = COPY / 'tests' / 'planted' / f'{flow}.lua'
    return str(own) if own.exists() else flow


def copy_sources():
    """Brings the copy to what is here, and touches only the files that differ, so that little is built."""
    listed = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    names = {name for name in listed.split('\0') if name and (ROOT / name).is_file()}
    for name in names:
        content, to = (ROOT / name).read_bytes(), COPY / name
        if to.is_file() and to.read_bytes() == content:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
        to.chmod((ROOT / name).stat().st_mode)
    for folder, folders, files in os.walk(COPY):
        if pathlib.Path(folder) == COPY:
            folders[:] = [name for name in folders if name != BUILD.name]
        for file in files:
            path = pathlib.Path(folder) / file
            if str(path.relative_to(COPY)) not in names:
                path.unlink()


def build(jobs):
    """What the compiler said, if it failed."""
    # What one folder compiled, ccache knows in another.
    environment = {**os.environ, 'CCACHE_BASEDIR': str(COPY), 'CCACHE_NOHASHDIR': '1'}
    if not (BUILD / 'build.ninja').exists():
        done = subprocess.run(['cmake', '--preset', 'release', '-DSLUICE_TESTS=OFF'], cwd=COPY, env=environment,
                              capture_output=True, text=True)
        if done.returncode != 0:
            return done.stdout + done.stderr
    done = subprocess.run(['ninja', '-C', str(BUILD), '-j', str(jobs), 'sluice'], env=environment, capture_output=True, text=True)
    return '' if done.returncode == 0 else done.stdout[-4000:] + done.stderr


def verdicts(flows):
    """By flow: its status and the reason for it."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / 'result.json'
        command = [str(BUILD / 'sluice'), 'eval', *map(path_of, flows), '--suite', 'verify', '--json', str(result)]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return dict.fromkeys(flows, ('no verdict', f'none after {MOST_SECONDS} s'))
        if not result.exists() or result.stat().st_size == 0:
            return dict.fromkeys(flows, ('no verdict', f'exit {done.returncode}: {done.stderr.strip()[-200:]}'))
        found = {flow['name']: flow for flow in json.loads(result.read_text())['flows']}
    return {flow: (found[flow]['status'], found[flow].get('message', '')) for flow in flows}


def plant(fault, jobs):
    """Status and reason of the flow with the fault in the copy, which is taken out again."""
    path = COPY / fault.file
    sound = path.read_text()
    if sound.count(fault.old) != 1:
        return 'not planted', f'{fault.file} has what it replaces {sound.count(fault.old)} times'
    try:
        path.write_text(sound.replace(fault.old, fault.new))
        trouble = build(jobs)
        return ('not built', trouble) if trouble else verdicts([fault.flow])[fault.flow]
    finally:
        path.write_text(sound)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('--only', default='', help='faults whose name has this in it')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    options = parser.parse_args()

    copy_sources()
    trouble = build(options.jobs)
    if trouble:
        sys.exit(f'the sources do not build:\n{trouble}')
    wanted = [fault for fault in FAULTS if options.only in fault.name]
    sound = verdicts(sorted({fault.flow for fault in wanted}))
    refused = [flow for flow, (status, _) in sound.items() if status != 'passed']
    for flow in refused:
        print(f'without a fault: {flow} is {": ".join(sound[flow])}')
    print(f'without a fault: {len(sound) - len(refused)} of {len(sound)} flows passed', flush=True)

    caught = 0
    for number, fault in enumerate(wanted, 1):
        started = time.monotonic()
        status, reason = plant(fault, options.jobs)
        found = status == 'incorrect_numerical'
        caught += found
        print(f'{number:3} {"caught" if found else "MISSED"}  {fault.name:<62} {fault.flow:<15} '
              f'{time.monotonic() - started:5.0f} s  {reason if found else f"{status} {reason}"}', flush=True)
    print(f'{caught} of {len(wanted)} faults caught')
    sys.exit(0 if caught == len(wanted) and not refused else 1)


if __name__ == '__main__':
    main()
