// package nodeimage builds what nodes boot from, and caches it: the image of Debian's
// packages by a recipe, and the system disk of servers that boot as Debian does. Nothing of
// one rack may live here (names, addresses, keys).
package nodeimage
