-- Heavy hitters (H2O, Zhang et al. 2023), by page, and by what attention really gave: pages are ranked by the weights that their
-- tokens had in all softmaxes so far, summed over the prompt, the steps and the heads of a group. Of the paper it keeps this score
-- and the recent tokens beside the heavy ones. The paper evicts tokens, one by one; here pages are left out and stay in memory. As
-- there, what is left out gains nothing more, so that it comes back only where others do not outweigh it.
local flow = sluice.flow { name = "heavy_hitters", page = 8, prompt_mass = "all" }

function flow.cache(c)
  c.heavy = sluice.cfill(0)
end

function flow.index(q, c)
  return sluice.topk(c.heavy, { ratio = 1 / 8, first = 1, last = 8 })
end

function flow.after(q, c, mass)
  c.heavy:save(c.heavy + mass:sum("token", "head"))
end

return flow
