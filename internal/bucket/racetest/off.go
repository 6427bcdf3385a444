//go:build !race

package racetest

const on = false
