"""The reference store passes the suite that it is the model of."""

from kemem.ports import Store
from kemem.testing import RamStore
from kemem.testing.conformance import StoreConformance


class TestRamStore(StoreConformance):
    """Every promise of a store."""

    async def open_store(self) -> Store:
        return RamStore()
