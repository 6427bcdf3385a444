"""Computes where windows by calendar begin, with zoneinfo of Python's library.

Reads names of zones, one a line; PYTHONTZPATH has the data. Writes little-endian numbers
of 64 bits: for each zone, and each calendar of CALENDARS in turn, runs of starts in
seconds since the epoch, each run preceded by its length, and a 0 after the last run. The
starts of a run follow each other without a gap.
"""

import calendar
import struct
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

FIRST, LAST = datetime(1970, 1, 1), datetime(2100, 1, 1)
# The same as in calendar_python_test.go: unit, minutes, weekday or day, months after January.
CALENDARS = [
    ("hour", 0, 0, 0), ("hour", 30, 0, 0),
    ("day", 0, 0, 0), ("day", 150, 0, 0),
    ("week", 0, 0, 0), ("week", 120, 6, 0),
    ("month", 0, 1, 0), ("month", 150, 31, 0),
    ("quarter", 0, 1, 0), ("quarter", 0, 30, 3),
    ("year", 0, 1, 0), ("year", 0, 29, 1),
]


def shown(zone, second):
    return datetime.fromtimestamp(second, zone).replace(tzinfo=None)


def second_of(zone, wall):
    """The moment at which clocks show wall for the first time, or have skipped it."""
    first = int(wall.replace(tzinfo=zone, fold=0).timestamp())
    if shown(zone, first) == wall:
        return first
    before, after = int(wall.replace(tzinfo=zone, fold=1).timestamp()), first
    while after - before > 1:
        middle = (before + after) // 2
        if shown(zone, middle) < wall:
            before = middle
        else:
            after = middle
    return after


def changes(zone):
    """When clocks were set, by the clocks before."""
    at, last = int(FIRST.replace(tzinfo=timezone.utc).timestamp()), int(LAST.replace(tzinfo=timezone.utc).timestamp())
    offset = lambda second: datetime.fromtimestamp(second, zone).utcoffset()
    found, before = [], offset(at)
    while at < last:
        low, at = at, at + 5 * 24 * 3600
        if offset(at) != before:
            high = at
            while high - low > 1:
                middle = (low + high) // 2
                if offset(middle) == before:
                    low = middle
                else:
                    high = middle
            found.append(shown(zone, low))
            before, at = offset(high), high
    return found


def in_month(year, month, day, minutes):
    day = min(day, calendar.monthrange(year, month)[1])
    return datetime(year, month, day) + timedelta(minutes=minutes)


STEPS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


def short_runs(unit, minutes, day, changed, everything):
    """The starts about changes of clocks, or all."""
    step, first = STEPS[unit], datetime(1970, 1, 5) + timedelta(days=day, minutes=minutes)
    if everything and unit != "hour":
        return [all_steps(first, step, (LAST - first) // step)]
    if not everything:
        changed = [at for at in changed if at.year < 2038 or at.year % 5 == 0]
    return [all_steps(first + ((at - first) // step - 3) * step, step, 8) for at in changed]


def all_steps(first, step, n):
    return [first + i * step for i in range(n)]


def months(unit, minutes, day, month):
    """All starts in months, quarters or years."""
    n, run = 1970 * 12 + month, []
    while n // 12 < LAST.year:
        run.append(in_month(n // 12, n % 12 + 1, day, minutes))
        n += {"month": 1, "quarter": 3, "year": 12}[unit]
    return run


def main():
    everything, out = "everything" in sys.argv, sys.stdout.buffer
    for name in sys.stdin.read().split():
        zone = ZoneInfo(name)
        changed = changes(zone)
        for unit, minutes, day, month in CALENDARS:
            if unit in STEPS:
                runs = short_runs(unit, minutes, day, changed, everything)
            else:
                runs = [months(unit, minutes, day, month)]
            for run in runs:
                out.write(struct.pack(f"<{len(run) + 1}q", len(run), *(second_of(zone, wall) for wall in run)))
            out.write(struct.pack("<q", 0))


main()
