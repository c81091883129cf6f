#!/bin/sh
# tools.sh RELEASE TOOL...: ends with a message unless each of the vendor's tools is there, of Vitis RELEASE or later.
set -eu
wanted=$1
shift
for tool; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "$tool is missing; source the settings64.sh of Vitis $wanted or later" >&2
        exit 1
    fi
    case $tool in
    v++) ask=--version ;;
    vivado) ask=-version ;;
    *) continue ;;
    esac
    release=$("$tool" "$ask" 2>/dev/null | sed -n 's/.*v\([0-9]\{4\}\.[0-9][0-9]*\).*/\1/p' | sed 1q)
    if [ -z "$release" ]; then
        echo "$tool $ask names no release; is this the $tool of Vitis?" >&2
        exit 1
    fi
    if [ "$(printf '%s\n' "$wanted" "$release" | sort -V | sed 1q)" != "$wanted" ]; then
        echo "$tool is of $release; the card's platform needs $wanted; source the settings64.sh of that or a later Vitis" >&2
        exit 1
    fi
done
