"""Asks a running daemon in Envoy's words. Usage: should_rate_limit.py HOST:PORT KEY=VALUE"""
import sys

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

address, (key, value) = sys.argv[1], sys.argv[2].split("=", 1)
with grpc.insecure_channel(address) as channel:
    service = rls_pb2_grpc.RateLimitServiceStub(channel)
    entry = ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value)
    request = rls_pb2.RateLimitRequest(domain="api", descriptors=[ratelimit_pb2.RateLimitDescriptor(entries=[entry])])
    response = service.ShouldRateLimit(request, timeout=5)
    print(rls_pb2.RateLimitResponse.Code.Name(response.overall_code), response.statuses[0].limit_remaining, "left")
