from pathlib import Path


def test_the_stand_ins_for_vendor_headers_work_as_the_vendors(csim_library):
    assert csim_library("headers", [Path(__file__).with_name("csim_headers.cpp")]).csim_headers() == 0
