#!/bin/sh
@HEADER@# The initial RAM disk leaves the arrays of the brick alone: on a server that was
# fenced they belong to its partner, which writes to them. mdadm's own hook copies
# nothing of /etc/mdadm/mdadm.conf.d, and adds a line for each array that it sees.
set -eu
[ "${1:-}" != prereqs ] || exit 0
arrays="@ARRAYS@"
conf=$DESTDIR@MAIN@
mkdir -p "$DESTDIR@DIR@"
[ -e "$conf" ] || : > "$conf"
for file in "$conf" "$DESTDIR@ALT@" "$DESTDIR@DIR@/"*; do
  [ -f "$file" ] || continue
  # A line that begins with a blank goes on with the one before.
  awk -v arrays="$arrays" '
    function end(  words, n, i) {
      gsub(/[^0-9a-z]/, "", line)
      n = split(tolower(arrays), words, " ")
      for (i = 1; i <= n; i++) {
        gsub(/:/, "", words[i])
        if (line ~ /^arr/ && index(line, "uuid" words[i])) text = ""
      }
      printf "%s", text
      text = line = ""
    }
    /^[^ \t#]/ { end() }
    { text = text $0 "\n" }
    !/^[ \t]*#/ { line = line tolower($0) }
    END { end() }
  ' "$file" > "$file.mortar"
  cat "$file.mortar" > "$file"
  rm "$file.mortar"
done
for array in $arrays; do
  echo "ARRAY <ignore> UUID=$array" >> "$conf"
done
