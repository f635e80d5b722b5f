"""Programs for GPUs: rows become items on streams, and a step replays them as captured graphs.

`meeting` is what an executor sets up: who runs the streams, memory (by a `ledger`), and the `carriers` between ranks:
`peers` (mapped memory), `together` (NCCL, as `library` plans) and messages. `streamed` makes the items, several rows
at once where `grouping` says so, and appends them to `issue`. `events` says where streams wait for each
other, `staging` brings feeds in, `replay` captures. `trial` knows before the first step what memory it takes;
`device_check` verifies, `device_guard` gives up steps that are not finite.
"""
