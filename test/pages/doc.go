// Package pages opens Mortar's pages in a browser: reports and the page of `mortar watch`. It has tests only.
package pages
