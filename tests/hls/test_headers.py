def test_the_stand_ins_for_vendor_headers_work_as_the_vendors(csim_library):
    assert csim_library("headers").csim_headers() == 0
