"""Times as RFC 3339 texts; defined in kemem.times, below the records."""

from kemem.times import EARLIEST as EARLIEST
from kemem.times import LATEST as LATEST
from kemem.times import to_datetime as to_datetime
from kemem.times import to_micros as to_micros
from kemem.times import to_rfc3339 as to_rfc3339
