#!/bin/bash
addresses=() command=
while [ $# -gt 0 ]; do
  case $1 in
  -c) command=$2; shift;;
  -S) ;;
  -*) echo "SMcli of the virtual rack knows no option $1" >&2; exit 1;;
  *) addresses+=("$1");;
  esac
  shift
done
for a in "${addresses[@]}"; do
  { exec 3<> "/dev/tcp/$a/2463"; } 2> /dev/null || continue
  printf '%s\n' "$command" >&3
  answer=$(cat <&3) && [ -n "$answer" ] || continue
  printf '%s\n' "$answer"
  exit 0
done
echo 'No controller of the storage array answers.' >&2
exit 1
