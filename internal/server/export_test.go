package server

import (
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The handlers behind the ports, for what would be too slow through them.

func (s *Server) RPC() rlsv3.RateLimitServiceServer { return s.viaGRPC }

func (s *Server) HTTP() http.Handler { return s.httpDoor() }

func (s *Server) Admin() http.Handler { return s.adminDoor() }

// BreakPorts has all ports fail.
func (s *Server) BreakPorts() { s.closeListeners() }
