"""Orders and turnover by shop, from a table of Postgres, exactly once: txtopo run examples/shop_orders.py:topology"""

from __future__ import annotations

from txtopo import CountCommitter, TableSpout, TopologyBuilder

builder = TopologyBuilder("orders")
builder.set_spout("rows", TableSpout("shop.orders", "shop string, price decimal(10,2)", dsn_env="SHOP_DSN"))
committer = CountCommitter("orders_by_shop", ["shop"], count="orders", sums={"price": "turnover"})
builder.set_committer_bolt("by_shop", committer).fields_grouping("rows", ["shop"])
topology = builder.build()

if __name__ == "__main__":
    raise SystemExit(topology.run_cli())
