//go:build unix

package redistest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func TestSingle(t *testing.T)  { t.Log(Single(t)) }
func TestCluster(t *testing.T) { t.Log(Cluster(t)) }
