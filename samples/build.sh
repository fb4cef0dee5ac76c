#!/bin/sh
# Prints samples/source/*.html to samples/papers/*.pdf with headless Chromium.
# Needs: chromium (or set CHROMIUM=/path/to/chrome) and the Liberation Serif font.
set -eu
cd "$(dirname "$0")"
chromium="${CHROMIUM:-chromium}"
profile="$(mktemp -d)"
trap 'rm -rf "$profile"' EXIT
mkdir -p papers

for page in source/*.html; do
  name="$(basename "$page" .html)"
  pdf="papers/$name.pdf"
  "$chromium" --headless --no-sandbox --disable-gpu --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$profile" --no-pdf-header-footer \
    --print-to-pdf="$PWD/$pdf" "file://$PWD/$page" 2>"$profile/log" || { cat "$profile/log" >&2; exit 1; }

  # A fixed date of the same length, so that a rebuild changes nothing but what was edited.
  LC_ALL=C sed -i.bak "s/(D:[0-9]\{14\}+00'00')/(D:20260105090000+00'00')/g" "$pdf"
  rm "$pdf.bak"

  # The broken sample: a real paper, cut off in the middle.
  case "$name" in
    *-truncated-on-purpose)
      half=$(($(wc -c <"$pdf") / 2))
      head -c "$half" "$pdf" >"$profile/half.pdf"
      cat "$profile/half.pdf" >"$pdf"
      ;;
  esac
  echo "$pdf $(wc -c <"$pdf" | tr -d ' ') bytes"
done
