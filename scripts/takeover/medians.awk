# Reads lines "GROUP PART SECONDS" and prints the median of each part, in the order of their
# first lines. Variable title: the line above them.
{ k = $1 " " $2; if (!(k in n)) order[++keys] = k; v[k, ++n[k]] = $3 }
END {
  print title
  for (i = 1; i <= keys; i++) {
    k = order[i]; m = n[k]
    for (a = 1; a <= m; a++) for (b = a + 1; b <= m; b++) if (v[k, b] < v[k, a]) { t = v[k, a]; v[k, a] = v[k, b]; v[k, b] = t }
    printf "%-32s %.3f (%.3f to %.3f)\n", k, v[k, int((m + 1) / 2)], v[k, 1], v[k, m]
  }
}
