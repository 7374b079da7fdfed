"""The reference store passes the suite that it is the model of."""

from kemem.ports import Store
from kemem_conformance import StoreConformance
from kemem_conformance.ram import RamStore


class TestRamStore(StoreConformance):
    """Every promise of a store."""

    async def open_store(self) -> Store:
        return RamStore()
