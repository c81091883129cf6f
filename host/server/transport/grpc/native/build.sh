#!/bin/sh
cd "$(dirname "$0")"
PY=../../../../../.venv/bin/python
INC=$($PY -c 'import sysconfig; print(sysconfig.get_path("include"))')
SUF=$($PY -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
nice g++ -std=c++17 -O2 -Wall -Wextra -Wno-missing-field-initializers -fPIC -shared -pthread -I"$INC" $EXTRA module.cpp front.cpp connection.cpp -lnghttp2 -o ${OUT:-http2$SUF}
