// Package lists has what package slices lacks: a list made of another one.
package lists

import "slices"

// Map makes a list of what of says of each part of a list; nil of an empty one.
func Map[T, U any](list []T, of func(T) U) []U {
	var out []U
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}

// Flat is Map where each part makes several.
func Flat[T, U any](list []T, of func(T) []U) []U {
	var out []U
	for _, x := range list {
		out = append(out, of(x)...)
	}
	return out
}

// Only lists the parts that are like this; nil if none is.
func Only[T any](list []T, is func(T) bool) []T {
	var out []T
	for _, x := range list {
		if is(x) {
			out = append(out, x)
		}
	}
	return out
}

// First gives the first part that is like this; false if none is.
func First[T any](list []T, is func(T) bool) (T, bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	var none T
	return none, false
}

// Find points to the first part of a list that is like this; nil if none is.
func Find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Distinct lists each part once, where it is first; nil of an empty list.
func Distinct[T comparable](list []T) []T {
	var out []T
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}
