#!/bin/sh
# mutate.sh SED SOURCE OUT: a deliberately broken copy of a source. Each substitution of SED must
# change one line: one that changes none breaks nothing.
sed -f "$1" "$2" >"$3.new" || exit 1
if [ "$(diff "$3.new" "$2" | grep -c '^>')" -ne "$(grep -c '^[^#]*s/' "$1")" ]; then
    echo "$1 does not change in $2 what it should" >&2
    exit 1
fi
mv "$3.new" "$3"
