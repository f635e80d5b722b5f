"""Functions of torch and methods of tensors in calls that a door may get wrong: unusual arguments, dtypes and shapes.

Every line is the inputs, as `tensors` reads them, and a function of them. All of them come through with torch's
numbers.
"""

CALLS = """
2 3 4 | x: x.sum((0,-1))
2 3 4 | x: x.mean((-1,-2),keepdim=True)
2 3 4 | x: x.amax((0,2))
2 3 4 | x: x.amin(-2,keepdim=True)
2 3 4 | x: x.logsumexp((0,2),keepdim=True)
2 3 4 | x: x.std((0,-1),keepdim=True)
2 3 4 | x: x.var()
3 5 | x: x.quantile(0.3, 1)
3 5 | x: x.nansum(1)
2 3 5 | x: x.cumsum(-2)
3 5 | x: x.diff(n=2,dim=0)
3 5 | x: torch.linalg.norm(x)
3 5 | x: x.norm(float('inf'),1)
3 5 | x: x.norm(0,1)
2 3 5 | x: x.norm(3,(0,2),keepdim=True)
3 5; 3 5 | x,y: torch.dist(x,y)
3 5 | x: (x>0).all(1).double()*x.sum(1)+(x>1).any(0).sum()
3 5 | x: x.sum()*torch.count_nonzero(x>0.5)
3 5 | x: x.argmin(1)*1.5
3 5 | x: x.argmax()+x
3 5 | x: x.argmax(-1,keepdim=True)
3 5 | x: (lambda v: v.values*v.indices)(x.max(0))
3 5 | x: x.min(-2,keepdim=True)[0]
3 5 | x: torch.aminmax(x,dim=1)
3 5 | x: torch.std_mean(x,1)
3 5 | x: torch.var(x,1,correction=2)
3 1 | x: torch.var(x,1,unbiased=False)
3 5 | x: x.topk(2,0,largest=False)
3 5 | x: (lambda v: v[0]*v[1])(x.sort(0,descending=True))
3 5 | x: x.msort()
3 5 | x: torch.gather(x,1,x.argsort(1,descending=True))
5 | x: torch.bucketize(x, torch.tensor([0.,1.,2.]).double()).double()*x
7 3 | x: sum((i+1)*c.sum(0) for i,c in enumerate(x.chunk(3)))
2 3 | x: [c*2 for c in x.chunk(5)]
2 7 | x: [c*(i+1) for i,c in enumerate(x.split([1,4,2],-1))]
7 3 | x: [c*(i+1) for i,c in enumerate(x.tensor_split(3))]
7 3 | x: [c*(i+1) for i,c in enumerate(x.tensor_split((2,5)))]
3 4 2 | x: torch.stack(x.unbind(1)[::-1],-1)
3 4 2 | x: x.roll((1,-3),(0,1))
3 4 2 | x: x.roll((1,7),(-1,-2))
3 4 | x: x.roll(5)
3 4 | x: x.repeat(2,1,3)
3 4 | x: x.tile(2)
3 4 | x: x.tile((2,1,3))
3 4 | x: x.repeat_interleave(3,-1)
3 4 | x: x.repeat_interleave(2)
3 4 | x: x.repeat_interleave(torch.tensor([1,0,2]),0)
3 1 4 | x: x.expand(2,-1,5,4)*2
2 3 4 5 | x: x.movedim((0,1),(-1,0))
2 3 4 | x: x.swapdims(0,-1).contiguous().view(4,6)
3 4 | x: x.rot90(-1,(1,0))
3 4 2 | x: x.flip(0,-1)
3 4 | x: torch.fliplr(x)+torch.flipud(x)
4 | x: torch.diag(x,1)
3 4 | x: torch.diag_embed(x,offset=-1)
3 4 5 | x: x.tril(-1)+x.triu(2)
4 4 | x: (x + torch.full((4,4),float('-inf')).triu(1)).softmax(-1)
4 4 | x: (1/x).tril()
3; 4 | x,y: torch.meshgrid(x,y,indexing='ij')
3; 4 | x,y: torch.cartesian_prod(x,y)
2 3; 3 2 | x,y: torch.block_diag(x,y)
2 3; 3 2 | x,y: torch.kron(x,y)
2 3; 2 3 | x,y: torch.hstack((x,y))
2; 2 | x,y: torch.column_stack((x,y))
2 3 | x: torch.cat((torch.zeros(0).double(),x,x),0)
2 3 | x: torch.cat((torch.zeros(0,3).double(),x),0)
2 3; i5 2 3 | x,y: torch.cat((x,y),-1)
5 4 | x: x.narrow(0,-3,2)
9 4 | x: x[1:-1:3, ::2]
5 4 | x: x[2:100]
5 4 3 | x: x[..., None, 1] + x[..., 0:1]
5 4 | x: x[[-1,-2,0]]
5 4 3 | x: x[[0,1],[2,-1]]
5 4 3 | x: x[[0,1],:,[2,-1]]
5 4 3 | x: x[torch.tensor([[0],[1]]),torch.tensor([2,3,1])]
5 4; i5 3 | x,i: x[i]
5 4; i4 3 2 | x,i: x[:,i]
5 4; i5 3; i4 3 | x,i,j: x[i,j]
5 4; i4 5 | x,j: x[torch.arange(5),j]
5 4; i20 3 | x,i: torch.take(x,i)
5 4; i4 5 2 | x,i: torch.take_along_dim(x,i,1)
5 4; i3 2 3 | x,i: x.gather(0,i)
5 4; i3 2 3 | x,i: x[i-3]
5 4 | x: x.index_select(1,torch.tensor([0,0,3]))
6 4; 3 4 | x,y: (lambda h: (h.__setitem__(slice(0,None,2),y),h)[1])(x.clone())
5 4; i4 3; 5 3 | x,i,y: x.index_add(1,i,y,alpha=-2)
5 4 | x: x.select(-1,-2)
1 4 1 2 | x: x.squeeze((0,1))*2
. | x: x.flatten()*2
4 6 | x: x.unflatten(-1,(2,-1))
4 6 | x: x.T.ravel()
4 | x: torch.atleast_3d(x)
.; 3 | x,y: x*y+x
3 | x: x[1]
3 | x: (torch.ones(2), x*2)
3 | x: (lambda h: (h,h))(x*2)
3; 3 | x,y: (y,x)
3; 3 | x,y: x*2
3 | x: (x*2,None)
3 | x: {"b": x*2, "a": [x, (x+1,)]}
i5 4 3 | x: x/2
i5 4 3 | x: x//2
i5 4 3 | x: (x-3)//2
i5 4 3 | x: (x-3)%3
i5 4 3 | x: torch.fmod(x-3,3)
i5 4 3 | x: torch.div(x-3,2,rounding_mode='trunc')
4 3 | x: x//0.7
4 3 | x: x%0.7
4 3 | x: x%-0.7
4 3; 4 3 | x,y: torch.remainder(x,y)
4 3; 4 3 | x,y: torch.fmod(x,y)
4 3; 4 3 | x,y: torch.floor_divide(x,y)
4 3 | x: 3.0//x
4 3 | x: 2**x
4 3 | x: x**0
4 3 | x: x**0.5
4 3 | x: x**-1
4 3 | x: x**-0.5
4 3 | x: x**3
4 3 | x: x**2.5
4 3; 4 3 | x,y: x**y
u 4 3; 4 3 | x,y: x**y
4 3; i3 4 3 | x,y: x**y
i5 4 3 | x: x**2
i5 4 3 | x: x**3
i5 4 3 | x: 2**x
i5 4 3 | x: x**0.5
i5 4 3; 4 3 | x,y: x*y+x-1
i5 4 3 | x: x*2.5
i5 4 3; i3 4 3 | x,y: x*y-x
i5 4 3; i3 4 3 | x,y: torch.maximum(x,y)
i5 4 3 | x: -x.abs()
i5 4 3 | x: x.float().mean()
i5 4 3 | x: x.sum()
i5 4 3 | x: x.sum(0,dtype=torch.float64)
i5 4 3 | x: x.cumsum(0)
i5 4 3 | x: x.max(1)
i5 4 3 | x: x.clamp(1,3)
i5 4 3 | x: x.sqrt()
i5 4 3 | x: torch.sin(x)
i5 4 3 | x: x.to(torch.int32)*3
i5 4 3 | x: x.to(torch.int8)*100
i5 4 3 | x: x.to(torch.uint8)-3
4 3 | x: (x*1e10).to(torch.int32)
4 3 | x: x.long()
4 3 | x: x.to(torch.int8).double()
4 3 | x: x.bool().double()*x
4 3 | x: x.float().double()
4 3 | x: (x>0)+(x<1)
4 3 | x: (x>0)*(x<1)*x
4 3 | x: (x>0)^(x<1)
4 3 | x: (x>0)|(x<-1)
4 3 | x: ~(x>0)
4 3 | x: (x>0).sum(1)
4 3 | x: (x>0).double().mean()
4 3 | x: (x>0)*2
4 3 | x: (x>0)*2.5+x
4 3 | x: 1-(x>0).int()
4 3 | x: torch.logical_xor(x>0,x<1)
4 3 | x: torch.logical_and(x,x>1)
4 3 | x: torch.logical_not(x)
b 4 3; 4 3 | b,x: torch.where(b,x,0)
b 4 3; 4 3 | b,x: torch.where(b,x,float('-inf')).softmax(-1)
b 4 3; 4 3 | b,x: x.masked_fill(~b,float('-inf')).softmax(-1)
b 4 3; 4 3 | b,x: x.masked_fill(b,float('inf'))
b 4 3; 4 3 | b,x: torch.where(b,1/x,x)
b 4 3; 4 3 | b,x: torch.where(b,x.sqrt(),x)
b 4 3; 4 3 | b,x: (x*b).sum()/b.sum()
b 4 3; 4 3 | b,x: (x*b).sum(1)/b.sum(1).clamp(min=1)
b 4 3; i5 4 3 | b,x: torch.where(b,x,-1)
b 4 3; i5 4 3 | b,x: torch.where(b,x,0.5)
b 4 1; 4 3; 3 | b,x,y: torch.where(b,x,y)
b 4 3; 4 3 | b,x: torch.where(b, torch.tensor(2.0), x)
4 3 | x: torch.where(x>0,1,0)
4 3 | x: torch.where(x>0,1.0,0.0)*x
4 3 | x: x.clamp(min=0.5)
4 3; 3; 3 | x,y,z: x.clamp(y,z)
4 3 | x: x.clamp(2,1)
4 3 | x: x.clamp(torch.tensor(0.0),torch.tensor(1.0))
4 3 | x: torch.isnan(x/x).double()+x
4 3 | x: torch.isfinite(1/x)
4 3 | x: torch.isinf(1/x)
4 3; 4 3 | x,y: torch.logaddexp(x,y)
4 3; 4 3 | x,y: torch.lerp(x,y,0.3)
4 3; 4 3; 4 3 | x,y,z: torch.lerp(x,y,z)
4 3; 4 3; 4 3 | x,y,z: torch.addcmul(x,y,z,value=-0.5)
4 3; 4 3; 4 3 | x,y,z: torch.addcdiv(x,y,z,value=-0.5)
4 3; 4 3 | x,y: torch.sub(x,y,alpha=2)
4 3 | x: torch.rsub(x,3,alpha=2)
4 3 | x: torch.add(x,3,alpha=2)
i5 4 3; i5 4 3 | x,y: torch.add(x,y,alpha=2)
i5 4 3; 4 3 | x,y: torch.add(y,x,alpha=2)
4 3 | x: torch.heaviside(x,torch.tensor(0.5).double())
4 3 | x: torch.frac(x)
4 3 | x: torch.round(x,decimals=1)
4 3 | x: torch.xlogy(x,x)
4 3 | x: torch.special.ndtr(x)
u 4 3 | x: torch.logit(x,eps=1e-3)
4 3 | x: torch.sigmoid(x).log()
4 3 | x: x.sgn()
4 3 | x: x.reciprocal()
4 3 | x: x.rsqrt()
4 3 | x: x.abs().sqrt()
4 3 | x: (x*x).sum().sqrt()
4 3 | x: x.log1p()
4 3 | x: x.square().log()
4 3; 4 3 | x,y: torch.max(x,y)+torch.min(x,y)
4 3; 4 3 | x,y: torch.isclose(x,y)
4 3; 4 3 | x,y: (x==y).double()*x
4 3; i3 4 3 | x,y: (x>=y)
4 3 | x: x.eq(0).any()*x
4 3; 4 3 | x,y: torch.cross(x,y,dim=1)
4 3; 4 3 | x,y: torch.inner(x,y)
4; 3 | x,y: torch.outer(x,y)
4; 4 | x,y: torch.dot(x,y)
4; 4 | x,y: torch.vdot(x,y)
4 3; 3 | x,y: torch.mv(x,y)
2 4 3; 3 | x,y: x@y
3; 2 3 4 | x,y: x@y
2 1 4 3; 5 3 2 | x,y: x@y
2 4 3; 3 5 | x,y: torch.tensordot(x,y,1)
2 4 3; 4 3 5 | x,y: torch.tensordot(x,y,([1,2],[0,1]))
2 4 3; 2 3 5; 2 4 5 | x,y,z: torch.baddbmm(z,x,y,beta=0.5,alpha=2)
4 3; 3; 4 | x,y,z: torch.addmv(z,x,y,alpha=3)
4; 3; 4 3 | x,y,z: torch.addr(z,x,y,beta=2)
4 4 | x: torch.matrix_power(x,3)
4 3; 3 4 | x,y: torch.chain_matmul(x,y,x)
4 3; 3 4 | x,y: torch.linalg.multi_dot((x,y,x))
2 4 3 | x: torch.einsum('...i->...',x)
2 4 3 | x: torch.einsum('bij->bji',x)
2 4 3; 2 4 3 | x,y: torch.einsum('bij,bij->b',x,y)
2 4 3; 2 5 3 | x,y: torch.einsum('b i d, b j d -> b i j',x,y)
2 4 3; 3 5 | x,y: torch.einsum('...d,de->...e',x,y)
4; 3 | x,y: torch.einsum('i,j',x,y)
4 3; 4 3 | x,y: torch.einsum('ij,ij',x,y)
4 3 | x: x.softmax(0,dtype=torch.float32)
4 3 | x: torch.zeros_like(x)+torch.eye(4,3)+torch.arange(3)
4 3 | x: x+torch.linspace(0,1,3).double()
4 3 | x: x*x.new_tensor([1.,2.,3.])
4 3 | x: x+torch.full_like(x,2,dtype=torch.int32)
4 3 | x: torch.ones_like(x).cumsum(0)*x
4 3 | x: x.new_full((3,),2.5)*x
4 3 | x: torch.tril_indices(4,3).sum()*x
4 3 | x: x.T.contiguous().view(-1)*2
4 3 | x: x.expand_as(torch.ones(2,4,3))+1
4 3 | x: x.type(torch.float32)+1
4 3 | x: x.half().double()
4 3 | x: x.bfloat16().double()
4 3 | x: x.half()
4 3 | x: x.bfloat16()*2
4 3 | x: x.float()+torch.ones(3,dtype=torch.float64)
4 3 | x: x.float()*torch.tensor(2.0,dtype=torch.float64)
4 3 | x: torch.dropout(x,0.5,False)
4 3 | x: x.detach()*x
4 3 | x: x.requires_grad_() * 2
4 3 | x: x.clone().fill_(3.0)*x
4 3 | x: x.clone().zero_()+x
4 3 | x: (x+0).add_(1).mul_(2).sub_(x).div_(3)
4 3 | x: (x+0).clamp_(0,1).sqrt_()
4 3 | x: (x+0).copy_(x*2)
4 3 | x: (lambda h: (h[0].mul_(3), h)[1])(x*2)
4 3 | x: (lambda h: (h.view(-1)[::2].zero_(), h)[1])(x*2)
4 3 | x: (lambda h: (h.T[0].add_(x[:,1]), h)[1])(x*2)
4 3 | x: (lambda h: (h.chunk(2)[1].mul_(-1), h)[1])(x*2)
4 3 | x: (lambda h: (h.unbind(1)[1].mul_(-1), h)[1])(x*2)
4 3 | x: (lambda h: (h.expand(2,4,3), h.mul_(2))[0])(x*2)
4 3 | x: (lambda h, k: (h.add_(k), k.mul_(2), h*k)[2])(x*2, x*3)
4 3 | x: (lambda h: (h.masked_fill_(h>0, 0), h)[1])(x*2)
4 3 | x: (lambda h: (h.squeeze_(0), h.unsqueeze_(-1), h)[2])((x*2)[None])
4 3 | x: (lambda h: (h.t_(), h)[1])(x*2)
4 3 | x: (lambda h: (h.__setitem__((slice(None),1), 5.0), h)[1])(x*2)
4 3 | x: (lambda h: (h.__setitem__((slice(None),1), x.sum(1)), h)[1])(x.float())
4 3 | x: (lambda h: (h.__setitem__((slice(1,3),slice(0,2)), x[:2,1:]), h)[1])(torch.zeros(4,3).double())
5 4; i5 3; i4 3 | x,i,j: x[i,j-4]
5 4 3; i5 3 1; i4 2 | x,i,j: x[i,j]
5 4 3; i5 3; i3 3 | x,i,j: x[i,:,j]
5 4; i4 5 | x,j: x[torch.arange(5),j-1].sum()
5 4 3; i3 2 | x,j: x[torch.tensor(2),torch.tensor(-1),j]
2 3 5 5; 2 4 4 2 | x,g: F.grid_sample(x,g,mode='bicubic',align_corners=False)
4 3 | x: F.cosine_similarity(x[None],x[:,None],dim=-1,eps=0.5)
2 4 8; b 2 4 4 | q,b: F.scaled_dot_product_attention(q,q,q,attn_mask=b)
2 4 8; b 1 1 4 | q,b: F.scaled_dot_product_attention(q,q,q,attn_mask=b)
2 4 8; 2 1 4 | q,b: F.scaled_dot_product_attention(q,q,q,attn_mask=b)
2 3 2 4 8; b 4 4 | q,b: F.scaled_dot_product_attention(q,q,q,attn_mask=b)
2 3 2 4 8; b 2 1 1 1 4 | q,b: F.scaled_dot_product_attention(q,q,q,attn_mask=b)
4 4; b 4 | x,b: F.scaled_dot_product_attention(x,x,x,attn_mask=b[None].expand(4,4))
b 4; 4 3 | b,x: x*b[:,None]
b .; 4 3 | b,x: torch.where(b,x,-x)
b 1; 4 3 | b,x: x*b
i2 4; 4 3 | t,x: F.cross_entropy(x,t)
3; i3 . | x,t: F.cross_entropy(x,t)
i2 .; 3 | t,x: x*t
5 4; i4 3 | x,i: x[i-4]
4 4 | x: (1/x).tril()+(1/x).triu(1)
i5 4 4 | x: x.tril()
b 4 4 | x: x.tril()
5 4 | x: torch.cat((x[3:3],x[1:]*2))
5 4 | x: x+x[:,:0].sum()
4 3; 3 | x,y: x.clamp(max=y)
4 3; 4 1 | x,y: x.clamp(min=y)
4 3 | x: x.sgn()*x
3 5 | x: torch.std_mean(x,dim=(0,1),keepdim=True)
3 5 | x: x.norm(1.5,1)
3 5; 3 5 | x,y: F.pairwise_distance(x,y,p=3,keepdim=True)
3 5 | x: x.argmax(keepdim=True)
i9 3 5 | x: x.argmax(0)
i5 4 3 | x: x.amax((0,1))
3 7 7 | x: F.avg_pool2d(x,2,ceil_mode=True,padding=1)
3 8; 3 4 3 | x,w: F.conv_transpose1d(x,w,stride=3,output_padding=2)
"""
