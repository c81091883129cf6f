"""Reproduce BatchMaker (EuroSys 2018): cellular batching."""
