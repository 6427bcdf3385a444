//go:build !linux

package main

import (
	"errors"
	"syscall"
	"time"
)

var errNotLinux = errors.New("known on Linux only")

func cpuTime(int) (time.Duration, error) { return 0, errNotLinux }

func busy() (time.Duration, error) { return 0, errNotLinux }

func resident(int) (int64, error) { return 0, errNotLinux }

func dieWithParent() *syscall.SysProcAttr { return nil }

func sleeper() func(time.Duration) { return time.Sleep }
