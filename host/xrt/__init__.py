"""XRT native API: the real `pyxrt` for a card, an emulated device for sw_emu and hw_emu containers."""
